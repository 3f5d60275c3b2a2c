package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/human"
)

// A start is one line of the log sender.
type start struct {
	ID      string    `json:"id"`
	Tenant  string    `json:"tenant"`
	User    string    `json:"user"`
	Slot    time.Time `json:"slot"`
	Started time.Time `json:"started_at"`
	Attempt int       `json:"attempt"`

	Type  string            `json:"type"`
	Cost  int               `json:"cost"` // 0 is 1
	Keys  map[string]string `json:"keys"`
	Costs map[string]int    `json:"costs"`
}

// readLogs reads all starts, oldest first.
func readLogs(names []string) (starts []start, err error) {
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		starts, err = readLog(starts, name, file)
		if err = errors.Join(err, file.Close()); err != nil {
			return nil, err
		}
	}
	if len(starts) == 0 {
		return nil, errors.New("no starts in the logs")
	}
	slices.SortFunc(starts, func(a, b start) int { return a.Started.Compare(b.Started) })
	return starts, nil
}

func readLog(starts []start, name string, from io.Reader) ([]start, error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var s start
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return nil, fmt.Errorf("%s:%d: not a start: %w", name, n, err)
		}
		if s.ID == "" || s.Tenant == "" || s.User == "" || s.Slot.IsZero() || s.Started.IsZero() {
			return nil, fmt.Errorf("%s:%d: not a start: want id, tenant, user, slot and started_at, as worker --sender log writes them", name, n)
		}
		starts = append(starts, s)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return starts, nil
}

// subject names whom a limit counts for. No two have the same name: one with a slash or a quote in it is quoted.
func subject(names ...string) string {
	quoted := slices.Clone(names)
	for i, name := range names {
		if strings.ContainsAny(name, `/"`) {
			quoted[i] = strconv.Quote(name)
		}
	}
	return strings.Join(quoted, " / ")
}

// summarize says how many there were, and how exact.
func summarize(out io.Writer, starts []start) {
	ids := make(map[string]bool, len(starts))
	late := make([]time.Duration, len(starts))
	early, again := 0, 0
	for i, s := range starts {
		if ids[s.ID] {
			again++
		}
		ids[s.ID] = true
		late[i] = s.Started.Sub(s.Slot)
		if late[i] < 0 {
			early++
		}
	}
	slices.Sort(late)
	quantile := func(p float64) time.Duration { return late[int(p*float64(len(late)-1))] }
	fmt.Fprintf(out, "%s of %s in %v, %d of them again\n", human.Count(len(starts), "start", "starts"), human.Jobs(len(ids)),
		starts[len(starts)-1].Started.Sub(starts[0].Started).Round(time.Millisecond), again)
	fmt.Fprintf(out, "start after slot: p50 %v, p99 %v, p99.9 %v, at most %v; before it: %d\n",
		quantile(.5), quantile(.99), quantile(.999), quantile(1), early)
}
