package errclass

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Errors that differ in numbers and quoted names only are of one class.
func TestErrorClass(t *testing.T) {
	for text, want := range map[string]string{
		"dial tcp 10.0.0.7:443: connect: connection refused": "dial tcp # connect: connection refused",
		`user "anna" of "a b" is unknown, code 17`:           `user "…" of "…" is unknown, code #`,
		"two\n\tlines":         "two lines",
		"status 429":           "status 429",
		"status 503":           "status 503",
		"HTTP/1.1 503: job 17": "# 503: job #",
		"status=404, port 443": "status=404, port #",
		"(502) from h-502:502": "(502) from #",
		"999 jobs, id 5030":    "# jobs, id #",
		`an open "quotation 7`: `an open "quotation #`,
		"":                     "",
	} {
		if got := Of(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{strings.Repeat("é", 300), strings.Repeat("x ", 5000), "\xff\xfe", strings.Repeat(`"`, 999)} {
		if got := Of(text); len(got) > 200 || !utf8.ValidString(got) {
			t.Errorf("%.20q… is %q", text, got)
		}
	}
}
