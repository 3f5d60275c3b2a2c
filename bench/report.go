package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// A report is what a run has found out.
type report struct {
	Environment environment `json:"environment"`
	Begun       time.Time   `json:"begun"`
	Rounds      int         `json:"rounds"`
	Quick       bool        `json:"quick"`
	Rows        []*row      `json:"rows"`
}

// A row is one figure, measured once in each round, and perhaps its ratio to another.
type row struct {
	Scenario string    `json:"scenario"`
	What     string    `json:"what"`
	Unit     string    `json:"unit"`
	Rounds   []float64 `json:"rounds"`
	Median   float64   `json:"median"`
	Min      float64   `json:"min"`
	Max      float64   `json:"max"`

	// What a job cost Redis, where jobs were what was measured.
	Commands float64 `json:"commands_per_job,omitempty"`
	Trips    float64 `json:"round_trips_per_job,omitempty"`
	CPU      float64 `json:"redis_us_per_job,omitempty"`

	Ratio   float64 `json:"ratio,omitempty"`
	Against string  `json:"against,omitempty"`
	Target  string  `json:"target,omitempty"`
	Met     *bool   `json:"met,omitempty"`

	commands, trips, cpu []float64
}

// add adds what one round measured.
func (r *row) add(value float64) {
	r.Rounds = append(r.Rounds, value)
	r.Median, r.Min, r.Max = median(r.Rounds), slices.Min(r.Rounds), slices.Max(r.Rounds)
}

// addCost adds what a job cost Redis in one round.
func (r *row) addCost(spent cost, jobs int) {
	r.commands = append(r.commands, float64(spent.commands)/float64(jobs))
	r.trips = append(r.trips, float64(spent.trips)/float64(jobs))
	r.cpu = append(r.cpu, float64(spent.cpu)/float64(time.Microsecond)/float64(jobs))
	r.Commands, r.Trips, r.CPU = median(r.commands), median(r.trips), median(r.cpu)
}

// over compares the row with a rival that it wants to be more than, or as much as.
func (r *row) over(rival *row) *row { return r.compare(r.Median, rival.Median, rival.What) }

// under compares the row with a rival that it wants to be less than: the ratio is how
// many times less.
func (r *row) under(rival *row) *row { return r.compare(rival.Median, r.Median, rival.What) }

// compare sets the ratio, unless there is nothing to divide by.
func (r *row) compare(one, other float64, against string) *row {
	if other != 0 {
		r.Ratio, r.Against = one/other, against
	}
	return r
}

// again returns a copy of the row, for one more comparison.
func (b *bench) again(r *row) *row {
	second := *r
	b.report.Rows = append(b.report.Rows, &second)
	return &second
}

func (r *row) wantRatioAtLeast(bound float64) {
	r.judge("≥ "+figure(bound)+" ×", r.Ratio >= bound)
}

func (r *row) wantRatioAtMost(bound float64) {
	r.judge("≤ "+figure(bound)+" ×", r.Ratio <= bound)
}

func (r *row) wantAtMost(bound float64) {
	r.judge("≤ "+figure(bound)+" "+r.Unit, r.Median <= bound)
}

// wantEachAtMost is wantAtMost for each of the rounds.
func (r *row) wantEachAtMost(bound float64) {
	r.judge("each ≤ "+figure(bound)+" "+r.Unit, r.Max <= bound)
}

func (r *row) judge(target string, met bool) { r.Target, r.Met = target, &met }

// best is the row with the highest median.
func best(rows []*row) *row {
	return slices.MaxFunc(rows, func(a, b *row) int { return cmp.Compare(a.Median, b.Median) })
}

func median(of []float64) float64 {
	of = slices.Sorted(slices.Values(of))
	middle := len(of) / 2
	if len(of)%2 == 0 {
		return (of[middle-1] + of[middle]) / 2
	}
	return of[middle]
}

// measured drops the rows that no round has filled, because something failed before.
func (r *report) measured() {
	r.Rows = slices.DeleteFunc(r.Rows, func(row *row) bool { return len(row.Rounds) == 0 })
}

// quantile is the value below which the part q of a sorted list lies.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func (r *report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}

// writeTable writes a table in Markdown that is aligned, so that it can be read as it is.
func (r *report) writeTable(w io.Writer) error {
	fmt.Fprintf(w, "%s\n%d rounds", r.Environment, r.Rounds)
	if r.Quick {
		fmt.Fprint(w, ", --quick")
	}
	fmt.Fprint(w, "\n\n")
	table := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	cells := func(c ...string) { fmt.Fprintf(table, "| %s\t|\n", strings.Join(c, "\t| ")) }
	cells("scenario", "what", "median", "min", "max", "unit", "commands", "trips", "Redis µs", "ratio", "against", "target", "met")
	cells(strings.Split(strings.Repeat("---,", 12)+"---", ",")...)
	last := ""
	for _, row := range r.Rows {
		name := row.Scenario
		if name == last {
			name = ""
		}
		last = row.Scenario
		met := ""
		if row.Met != nil && *row.Met {
			met = "yes"
		} else if row.Met != nil {
			met = "NO"
		}
		cells(name, row.What, figure(row.Median), figure(row.Min), figure(row.Max), row.Unit,
			unlessZero(row.Commands), unlessZero(row.Trips), unlessZero(row.CPU), unlessZero(row.Ratio), row.Against, row.Target, met)
	}
	return table.Flush()
}

func unlessZero(v float64) string {
	if v == 0 {
		return ""
	}
	return figure(v)
}

// figure writes a number with the three digits that such measurements are good for, or
// as a whole number if it is large.
func figure(v float64) string {
	switch {
	case math.IsNaN(v):
		return "none"
	case math.Abs(v) < 1000:
		return strconv.FormatFloat(v, 'g', 3, 64)
	default:
		return thousands(int64(math.Round(v)))
	}
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
