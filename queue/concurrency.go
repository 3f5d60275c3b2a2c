package queue

import (
	"strconv"
	"strings"

	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// A Concurrency is how many jobs run at once: a number, or a share of the places of all
// workers that live, at least 1. The zero value is no limit.
//
// A job counts from its claim, which is up to 20 ms before its start, until its end has
// reached Redis. The jobs of a worker that has died count until its lease has expired. Of what
// a limit blocks only the earliest start is known: it starts when another job has ended.
type Concurrency struct {
	Jobs    int // a number of jobs, from 1 to 1,000,000
	Percent int // or a share of all places, from 1 to 100
}

// The largest values of a [Concurrency].
const (
	maxConcurrency = 1_000_000
	maxPercent     = 100
)

// String returns the limit as policy files have it: "20", "25%", or "" for none.
func (c Concurrency) String() string {
	switch {
	case c.Jobs != 0:
		return strconv.Itoa(c.Jobs)
	case c.Percent != 0:
		return strconv.Itoa(c.Percent) + "%"
	}
	return ""
}

// parseConcurrency reads what String writes.
func parseConcurrency(text string) (c Concurrency, ok bool) {
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(number)
	if c.Jobs = n; percent {
		c = Concurrency{Percent: n}
	}
	return c, err == nil && n > 0 && c.validate("") == nil
}

func (c Concurrency) validate(where string) error {
	switch {
	case c.Jobs != 0 && c.Percent != 0:
		return invalid(where, "%d jobs and %d%%; a number of jobs or a share of the places, not both", c.Jobs, c.Percent)
	case c.Jobs < 0 || c.Jobs > maxConcurrency:
		return invalid(where, "%d; 1 to %d jobs, or 0 for no limit", c.Jobs, maxConcurrency)
	case c.Percent < 0 || c.Percent > maxPercent:
		return invalid(where, "%d%%; 1%% to %d%% of all places, or 0 for no limit", c.Percent, maxPercent)
	}
	return nil
}

func (c Concurrency) compile() schedule.Concurrency {
	return schedule.Concurrency{Jobs: c.Jobs, Percent: c.Percent}
}
