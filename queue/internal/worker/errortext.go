package worker

import "strings"

// How much of an error is kept, in bytes: with a dead job, and with one that is to be
// attempted again.
const (
	keptError  = 4096
	shownError = 300
)

// clip bounds the text of an error that is kept. Bytes that are no UTF-8 are replaced, and no character is cut in two.
func clip(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + " …"
	}
	return text
}
