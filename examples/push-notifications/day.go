package main

import (
	"fmt"
	"io"
	"time"

	"github.com/waterclock/waterclock/queue"
)

const (
	dayCells = 40 // of a row, which is a minute of school time
	dayRows  = 9
)

// printDay draws the busy teacher's timeline: a row is a minute, a mark a notification.
func printDay(out io.Writer, starts []start, drops []queue.Drop) {
	minute := here(time.Minute)
	var first time.Time
	var rows [][]rune
	started, dropped := 0, 0
	for _, s := range starts {
		if s.Tenant != busySchool || s.User != busyTeacher {
			continue
		}
		if first.IsZero() {
			first = s.Started
		}
		since := s.Started.Sub(first)
		row := int(since / minute)
		for len(rows) <= min(row, dayRows) {
			rows = append(rows, []rune(blank()))
		}
		rows[min(row, dayRows)][int((since%minute)*dayCells/minute)] = '▪'
		started++
	}
	for _, d := range drops {
		if d.Tenant == busySchool && d.User == busyTeacher {
			dropped++
		}
	}
	fmt.Fprintf(out, "\nThe day of %s at %s: %d jobs offered at once, %d started, %d dropped.\n",
		busyTeacher, busySchool, busyJobs, started, dropped)
	fmt.Fprintf(out, "A row is a minute of school time (%g s here), a mark is a notification.\n\n", minute.Seconds())
	for i, row := range rows {
		fmt.Fprintf(out, "  %2d min  %s\n", i, string(row))
	}
}

func blank() string {
	row := make([]rune, dayCells)
	for i := range row {
		row[i] = '·'
	}
	return string(row)
}
