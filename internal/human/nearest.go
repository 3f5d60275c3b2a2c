package human

import (
	"slices"
	"strings"
)

// Suggest says which names there are, one at least, for somebody who has said another one: the nearest, or the first ones.
func Suggest(name string, there []string) string {
	const most = 10
	nearest := slices.MinFunc(there, func(a, b string) int { return distance(name, a) - distance(name, b) })
	if distance(name, nearest) <= 1+len(name)/4 {
		return "did you mean " + Clean(nearest) + "?"
	}
	text := "there are " + Clean(strings.Join(there[:min(most, len(there))], ", "))
	if len(there) > most {
		text += ", …"
	}
	return text
}

// distance returns how many bytes have to be changed, added or removed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for k := range row {
		row[k] = k
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for k := range len(b) {
			changed := diagonal
			if a[i] != b[k] {
				changed++
			}
			diagonal = row[k+1]
			row[k+1] = min(changed, row[k]+1, row[k+1]+1)
		}
	}
	return row[len(b)]
}
