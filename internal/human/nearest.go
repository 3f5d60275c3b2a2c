package human

import (
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/nearest"
)

// Suggest says which names there are, one at least, for somebody who has said another one: the nearest, or the first ones.
func Suggest(name string, there []string) string {
	const most = 10
	best := slices.MinFunc(there, func(a, b string) int { return nearest.Distance(name, a) - nearest.Distance(name, b) })
	if nearest.Distance(name, best) <= 1+len(name)/4 {
		return "did you mean " + Clean(best) + "?"
	}
	text := "there are " + Clean(strings.Join(there[:min(most, len(there))], ", "))
	if len(there) > most {
		text += ", …"
	}
	return text
}
