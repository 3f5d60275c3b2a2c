package main

import (
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/human"
)

// suggest says which names there are, for somebody who has said another one.
func suggest(name string, there []string) string {
	const most = 10
	if len(there) == 0 {
		return "there are no queues in this Redis"
	}
	nearest := slices.MinFunc(there, func(a, b string) int { return distance(name, a) - distance(name, b) })
	if distance(name, nearest) <= 1+len(name)/4 {
		return "did you mean " + human.Clean(nearest) + "?"
	}
	text := "there are " + human.Clean(strings.Join(there[:min(most, len(there))], ", "))
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
