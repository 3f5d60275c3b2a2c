package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/waterclock/waterclock/internal/human"
)

// A table is rows of cells; the first is the title.
type table [][]string

func (t *table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = human.Clean(fmt.Sprint(cell))
	}
	*t = append(*t, texts)
}

// show prints a value as JSON, or a table of it.
func (c *console) show(value any, print func(t *table)) error {
	if c.json {
		encoder := json.NewEncoder(c.out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	}
	var t table
	print(&t)
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for _, cells := range t {
		fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), " \t"))
	}
	return w.Flush()
}

// say prints a line, unless JSON was asked for.
func (c *console) say(format string, args ...any) {
	if !c.json {
		fmt.Fprintln(c.out, human.Clean(fmt.Sprintf(format, args...)))
	}
}
