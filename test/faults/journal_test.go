package faults

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"
)

// An execution is one run of a handler.
type execution struct {
	start
	worker       string
	began, ended time.Time // on this machine's clock; ended is zero if it never did
	late         time.Duration
}

// readJournals returns the executions in the order in which they began.
func readJournals(t testing.TB, names []string) []*execution {
	runs := make(map[string]*execution)
	var all []*execution
	for _, name := range names {
		for _, l := range readLines(t, name) {
			switch e := runs[l.Run]; {
			case l.Start != nil:
				e = &execution{start: *l.Start, worker: l.Worker, began: l.At, late: l.Late}
				runs[l.Run] = e
				all = append(all, e)
			case e != nil:
				e.ended = l.At
			default:
				t.Errorf("%s holds the end of %s and not its begin", name, l.Run)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *execution) int { return a.began.Compare(b.began) })
	return all
}

// readLines returns the whole lines of a journal. The last one is cut where its worker was killed.
func readLines(t testing.TB, name string) []line {
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var all []line
	for text := range bytes.Lines(text) {
		if !bytes.HasSuffix(text, []byte("\n")) {
			break
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			t.Errorf("%v in %s", err, text)
			continue
		}
		all = append(all, l)
	}
	return all
}
