package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/waterclock/waterclock/internal/jobline"
)

func TestLines(t *testing.T) {
	long := strings.Repeat("x", jobline.MaxLine)
	input := "\ufeffone\r\n\n" + long + "\n" + long + "y\nfive\n" + long + long + "\n\ufeffseven"
	want := []string{"one", "", long, "too long", "five", "too long", "\ufeffseven"}
	for name, r := range map[string]io.Reader{
		"at once": strings.NewReader(input), "in pieces": iotest.HalfReader(strings.NewReader(input)),
	} {
		l := newLines(r)
		for i, want := range want {
			line, err := l.next()
			got := string(line)
			if errors.Is(err, errTooLong) {
				got, err = "too long", nil
			}
			if got != want || err != nil || l.number != i+1 {
				t.Fatalf("%s: line %d: %.20q (%d bytes), %v; want %.20q", name, l.number, got, len(got), err, want)
			}
		}
		if _, err := l.next(); !errors.Is(err, io.EOF) || l.bytes != int64(len(input)) {
			t.Errorf("%s: after the end: %v, %d bytes", name, err, l.bytes)
		}
	}
}

func TestLinesFail(t *testing.T) {
	l := newLines(io.MultiReader(strings.NewReader("one\ntwo"), iotest.ErrReader(errors.New("the disk is gone"))))
	if line, err := l.next(); string(line) != "one" || err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	if _, err := l.next(); err == nil || err.Error() != "the disk is gone" {
		t.Errorf("got %v", err)
	}
}
