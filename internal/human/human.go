// Package human writes what people read: numbers, spans of time, names that may hold anything,
// why a job waits, and what a change changes.
package human

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Clean escapes what is no plain text: a name may hold anything, and a terminal obeys some of
// it.
func Clean(text string) string {
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

// Span writes a duration for people: two digits that matter.
func Span(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Span(-d)
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		text := d.Round(time.Second).String()
		if minutes, whole := strings.CutSuffix(text, "m0s"); whole {
			return minutes + "m"
		}
		return text
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// From writes an instant as people ask for it: how far it is from now.
func From(now, at time.Time) string {
	switch {
	case at.IsZero():
		return "-"
	case at.Sub(now) < time.Millisecond && now.Sub(at) < 50*time.Millisecond: // clocks differ by more
		return "now"
	case at.After(now):
		return "in " + Span(at.Sub(now))
	}
	return Span(now.Sub(at)) + " ago"
}

// Jobs writes how many jobs there are.
func Jobs[N int | int64](n N) string { return Count(n, "job", "jobs") }

// Count writes how many there are of something.
func Count[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Thousands(n) + " " + many
}

// Thousands writes a number with commas.
func Thousands[N int | int64](n N) string {
	text := strconv.FormatInt(int64(n), 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
