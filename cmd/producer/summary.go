package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/queue"
)

// A summary is what became of the input. Every job offered is accepted, a duplicate or
// dropped; one whose fate is unknown because Redis went away is none of them.
type summary struct {
	Offered   int                  `json:"offered"`
	Accepted  int                  `json:"accepted"`
	Replaced  int                  `json:"replaced"` // of the accepted: took the place of another
	Duplicate int                  `json:"duplicate"`
	Dropped   map[queue.Reason]int `json:"dropped"`
	Invalid   int                  `json:"invalid"`
	Seconds   float64              `json:"seconds"`
	PerSecond float64              `json:"per_second"`
}

func (s *summary) count(receipts []queue.Receipt) {
	for _, r := range receipts {
		s.Offered++
		switch r.Status {
		case queue.Replaced:
			s.Replaced++
			s.Accepted++
		case queue.Accepted:
			s.Accepted++
		case queue.Duplicate:
			s.Duplicate++
		default:
			s.Dropped[r.Reason]++
		}
	}
}

func (s *summary) finish(took time.Duration) {
	s.Seconds = took.Round(time.Microsecond).Seconds()
	if s.Seconds > 0 {
		s.PerSecond = float64(int(float64(s.Offered)/s.Seconds*10)) / 10
	}
}

func (s *summary) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(s)
	}
	_, err := fmt.Fprintln(w, s)
	return err
}

// String is the summary for people:
//
//	offered 5000 jobs in 0.42 s (11904/s): 4990 accepted, 7 duplicate, 3 dropped (3 full)
func (s *summary) String() string {
	text := fmt.Sprintf("offered %d jobs in %.2f s (%.0f/s): %d accepted", s.Offered, s.Seconds, s.PerSecond, s.Accepted)
	if s.Replaced > 0 {
		text += fmt.Sprintf(" (%d took the place of another)", s.Replaced)
	}
	if s.Duplicate > 0 {
		text += fmt.Sprintf(", %d duplicate", s.Duplicate)
	}
	if len(s.Dropped) > 0 {
		total, reasons := 0, []string(nil)
		for _, reason := range slices.Sorted(maps.Keys(s.Dropped)) {
			total += s.Dropped[reason]
			reasons = append(reasons, fmt.Sprintf("%d %s", s.Dropped[reason], reason))
		}
		text += fmt.Sprintf(", %d dropped (%s)", total, strings.Join(reasons, ", "))
	}
	if s.Invalid > 0 {
		text += fmt.Sprintf("; %d lines were invalid", s.Invalid)
	}
	return text
}
