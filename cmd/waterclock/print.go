package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"
)

// A table is rows of cells; the first is the title.
type table [][]string

func (t *table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = clean(fmt.Sprint(cell))
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
		fmt.Fprintln(c.out, clean(fmt.Sprintf(format, args...)))
	}
}

// clean escapes what is no plain text: a name may hold anything, and a terminal obeys some of
// it.
func clean(text string) string {
	plain := func(r rune) bool { return r == ' ' || unicode.IsGraphic(r) && !unicode.Is(unicode.Bidi_Control, r) }
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case plain(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// span writes a duration for people: two digits that matter.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + span(-d)
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// from writes an instant as people ask for it: how far it is from now.
func from(now, at time.Time) string {
	switch {
	case at.IsZero():
		return "-"
	case at.After(now):
		return "in " + span(at.Sub(now))
	case now.Sub(at) < 50*time.Millisecond:
		return "now"
	}
	return span(now.Sub(at)) + " ago"
}

// jobs writes how many jobs there are.
func jobs[N int | int64](n N) string {
	if n == 1 {
		return "1 job"
	}
	return thousands(n) + " jobs"
}

// thousands writes a number with commas.
func thousands[N int | int64](n N) string {
	text := strconv.FormatInt(int64(n), 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
