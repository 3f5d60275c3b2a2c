// Package errclass tells errors of one kind from others by their texts: of a provider that is down,
// every job says the same but for its numbers.
package errclass

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

var (
	quotation = regexp.MustCompile(`"[^"]*"`)
	numbered  = regexp.MustCompile(`\S*\d\S*`)
	code      = regexp.MustCompile(`^(?:[A-Za-z_]+[=:])?[^\w\s]*(\d{3})[^\w\s]*$`) // 429, (503), status=404:
)

// Of returns what errors of one kind have in common: words with a digit in them are
// written as #, but for the status codes of HTTP, and what stands in quotation marks as "…". It
// has 200 bytes at most.
func Of(text string) string {
	const read, most = 1000, 200
	text = quotation.ReplaceAllString(text[:min(read, len(text))], `"…"`)
	class := strings.Join(strings.Fields(numbered.ReplaceAllStringFunc(text, hideNumber)), " ")
	return strings.ToValidUTF8(class[:min(most, len(class))], "")
}

// hideNumber writes a word with a digit as #, unless it is a status code of HTTP.
func hideNumber(word string) string {
	if found := code.FindStringSubmatch(word); found != nil {
		if status, _ := strconv.Atoi(found[1]); http.StatusText(status) != "" {
			return word
		}
	}
	return "#"
}
