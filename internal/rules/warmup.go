package rules

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/wallclock"
)

// A warm-up is a window that becomes another one on some days: a new sender raises its volume step by step. Which window holds is a
// function of the instant, as with hours. All of them look at one log, which holds what the largest of them looks at, or at one
// count: so what was counted stays counted when the next one comes.
type warmup struct{}

// A stage is the window of a warm-up from one of its days on.
type stage struct {
	day   int
	from  int64 // when that day begins; the first window holds before, too
	until int64 // no slot of this stage lies there or behind it; Never for the last
	rule
}

// The bounds of warm-ups.
const (
	maxDay     = 3660
	maxWindows = 100
)

// A DayWindow is the window of a warm-up from one of its days on.
type DayWindow struct {
	Day    int
	Window Rule
}

// String returns the window as a warm-up writes it: "2:100/24h".
func (d DayWindow) String() string { return fmt.Sprintf("%d:%s", d.Day, d.Window.Rate()) }

// ParseDayWindow reads a day and its window, by the calendar of a zone where that is one. The error says what would be right, and
// whether it is the day that is wrong.
func ParseDayWindow(number, window, zone string) (d DayWindow, ofDay bool, err error) {
	if d.Day, err = strconv.Atoi(number); err != nil || d.Day < 1 || d.Day > maxDay {
		return d, true, fmt.Errorf("day %q: want a number from 1 to %d", number, maxDay)
	}
	d.Window = Rule{Kind: Window}
	if err = d.Window.SetRate(window); err == nil {
		if d.Window.Kind == Calendar {
			d.Window.Zone = cmp.Or(zone, "UTC")
		}
		if wrong := d.Window.Wrong(); wrong != "" {
			err = fmt.Errorf("%s %s: %s", Window, d.Window.Rate(), wrong)
		}
	}
	if err != nil {
		return d, false, fmt.Errorf("day %d: %w", d.Day, err)
	}
	return d, false, nil
}

// Behind returns an error that says why a window of a warm-up cannot follow the one before, which is nil for the first, and whether
// it is the day that is wrong.
func (d DayWindow) Behind(before *DayWindow) (ofDay bool, err error) {
	switch {
	case before == nil && d.Day != 1:
		return true, fmt.Errorf("the first day is %d; want 1, the day of from", d.Day)
	case before == nil:
	case d.Day == before.Day:
		return true, fmt.Errorf("day %d stands twice", d.Day)
	case d.Day < before.Day:
		return true, fmt.Errorf("day %d behind day %d; want the days in ascending order", d.Day, before.Day)
	case d.Window.Unit != before.Window.Unit:
		return false, fmt.Errorf("day %d: %s behind %s would forget what was counted; want all windows by the same unit of the calendar, or none of them", d.Day, d.Window.Rate(), before.Window.Rate())
	}
	return false, nil
}

// dayWindows reads the windows of a warm-up.
func (r Rule) dayWindows() (all []DayWindow, err error) {
	if strings.TrimSpace(r.Windows) == "" {
		return nil, fmt.Errorf("no windows; want some with the days from which they hold, such as 1: 50/24h and 2: 100/24h")
	}
	for text := range strings.SplitSeq(r.Windows, ",") {
		number, window, found := strings.Cut(text, ":")
		if !found {
			return nil, fmt.Errorf("%q: want a day and its window, such as 2:100/24h", text)
		}
		d, _, err := ParseDayWindow(strings.TrimSpace(number), strings.TrimSpace(window), r.Zone)
		if err != nil {
			return nil, err
		}
		var before *DayWindow
		if len(all) > 0 {
			before = &all[len(all)-1]
		}
		if _, err := d.Behind(before); err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	if len(all) > maxWindows {
		return nil, fmt.Errorf("%d windows; want %d at most", len(all), maxWindows)
	}
	return all, nil
}

// DayWindows returns the windows of a warm-up, none of other rules and of one that is wrong.
func (r Rule) DayWindows() []DayWindow {
	if r.Kind != Warmup {
		return nil
	}
	all, err := r.dayWindows()
	if err != nil {
		return nil
	}
	return all
}

// wrongWarmup returns what is wrong with a warm-up, and what would be right.
func (r Rule) wrongWarmup() string {
	if r.Zone == OfUser {
		return "a warm-up has the same days for all; want a zone such as Europe/Paris, or none for UTC"
	}
	if r.Zone != "" {
		if _, err := wallclock.Zone(r.Zone); err != nil {
			return err.Error()
		}
	}
	if err := CheckDate(r.From); err != nil {
		return err.Error()
	}
	if _, err := r.dayWindows(); err != nil {
		return err.Error()
	}
	return ""
}

// CheckDate returns an error that says what would be right unless a text is the date on which a warm-up can begin.
func CheckDate(text string) error {
	if date, err := time.Parse(time.DateOnly, text); err != nil || date.Year() < 1971 || date.Year() > 2200 {
		return fmt.Errorf("from %q: want a date such as 2026-12-01", text)
	}
	return nil
}

// tidiedWarmup returns a warm-up in one form, with what is known of all its windows.
func (r Rule) tidiedWarmup() Rule {
	all := r.DayWindows()
	if all == nil {
		return r
	}
	r.Limit, r.Period, r.Unit = 0, 0, all[0].Window.Unit
	texts := make([]string, len(all))
	for i, d := range all {
		r.Limit, r.Period, texts[i] = max(r.Limit, d.Window.Limit), max(r.Period, d.Window.Period), d.String()
	}
	r.Windows = strings.Join(texts, ",")
	return r
}

// begins returns when a day of the warm-up begins, in its zone.
func (r Rule) begins(day int) int64 {
	date, _ := time.Parse(time.DateOnly, r.From)
	return wallclock.DayBegins(zoneOf(r), date.AddDate(0, 0, day-1))
}

// newStages compiles the windows of a valid warm-up.
func newStages(r Rule, slack int64) []stage {
	var all []stage
	for _, d := range r.DayWindows() {
		of := d.Window
		of.Drop, of.Shadow, of.Counts = r.Drop, r.Shadow, r.Counts
		all = append(all, stage{d.Day, r.begins(d.Day), Never, newRule(of, slack)})
	}
	for i := range len(all) - 1 {
		this, next := &all[i], &all[i+1]
		if this.until = next.from; next.n < this.n || next.period > this.period { // a start after its slot would fall into the tighter one
			this.until -= slack
		}
	}
	return all
}

// A Stage is a window of a warm-up as a script decides by it: from when and until when it has slots, how many it admits, and in which time, in µs.
// The first one has slots before, too, and the last one until [Never].
type Stage struct{ From, Until, Limit, Period int64 }

// Stages returns the windows of a warm-up, for starts up to slack after their slots.
func (r Rule) Stages(slack time.Duration) (all []Stage) {
	for _, s := range newStages(r, slack.Microseconds()) {
		all = append(all, Stage{s.from, s.until, s.n, s.period})
	}
	return all
}

// stageAt returns which window of a warm-up holds at an instant.
func (r *rule) stageAt(t int64) int {
	i := 0
	for i+1 < len(r.stages) && t >= r.stages[i+1].from {
		i++
	}
	return i
}

// admits reports whether one of the windows of a warm-up from the i-th on admits a cost.
func (r *rule) admits(i int, cost int64) bool {
	for _, s := range r.stages[i:] {
		if s.n >= cost {
			return true
		}
	}
	return false
}

// A cost that only a later window admits waits for it.
func (warmup) when(st *State, r *rule, t, cost int64) int64 {
	for i := r.stageAt(t); ; i++ {
		s, last := &r.stages[i], i+1 == len(r.stages)
		if s.n >= cost || last || !r.admits(i+1, cost) {
			if at := s.kind.when(st, &s.rule, t, min(cost, s.n)); at < s.until || last {
				return at
			}
		}
		t = max(t, r.stages[i+1].from)
	}
}

func (warmup) full(st *State, r *rule) int64 {
	if r.logged {
		return fullAfter(st, r)
	}
	return fixedWindow{}.full(st, r)
}

func (warmup) spend(st *State, r *rule, a action) {
	s := &r.stages[r.stageAt(a.at)]
	s.kind.spend(st, &s.rule, a)
}

func (warmup) undo(st *State, r *rule, t, cost int64) {
	s := &r.stages[r.stageAt(t)]
	s.kind.undo(st, &s.rule, t, cost)
}

// topAt returns the largest cost that the rule admits at an instant.
func (r *rule) topAt(t int64) int {
	if r.stages == nil {
		return r.top
	}
	return r.stages[r.stageAt(t)].top
}

// shortest returns the period of a window, the shortest one of a warm-up.
func (r *rule) shortest() int64 {
	period := r.period
	for i := range r.stages {
		period = min(period, r.stages[i].period)
	}
	return period
}

// warmed is [Set.After] for a warm-up: each window lets as many start as it admits, in each of its periods.
func (r *rule) warmed(st *State, t, k int64) int64 {
	for i := r.stageAt(t); ; i++ {
		s, last := &r.stages[i], i+1 == len(r.stages)
		at := int64(Never)
		switch periods := k / s.n; {
		case s.Unit != "":
			at = s.periodAfter(st, t, periods)
		case periods < (Never-t)/s.period:
			at = t + periods*s.period
		}
		if last || at < s.until {
			return at
		}
		next := r.stages[i+1].from
		if s.Unit != "" {
			for t < next && k >= 0 {
				_, t = s.around(st, t)
				k -= s.n
			}
		} else {
			k -= (next - t + s.period - 1) / s.period * s.n
		}
		t, k = next, max(k, 0)
	}
}

// On returns the window of a warm-up that holds at an instant, with the options of the warm-up; other rules as they are.
func (r Rule) On(t int64) Rule {
	window, _, _ := r.onDay(t)
	return window
}

// Changes returns when the window of a warm-up that holds at an instant holds no more; [Never] for the last, and for other rules.
func (r Rule) Changes(t int64) int64 {
	for _, d := range r.DayWindows() {
		if at := r.begins(d.Day); d.Day > 1 && t < at {
			return at
		}
	}
	return Never
}

// onDay returns the window that holds at an instant, which day that is (0 before the first, and no later one than that of the last
// window), and that of the last window.
func (r Rule) onDay(t int64) (window Rule, day, days int) {
	all := r.DayWindows()
	if all == nil {
		return r, 0, 0
	}
	for i, d := range all {
		if i > 0 && t < r.begins(d.Day) {
			break
		}
		window, day = d.Window, d.Day
	}
	window.Drop, window.Shadow, window.Counts = r.Drop, r.Shadow, r.Counts
	days = all[len(all)-1].Day
	if t < r.begins(1) {
		return window, 0, days
	}
	date, _ := time.Parse(time.DateOnly, r.From)
	return window, min(max(day, wallclock.DaysSince(zoneOf(r), date, t)+1), days), days
}

// RuleAt returns the i-th rule as it is at an instant: of a warm-up the window of the day.
func (s *Set) RuleAt(i int, t int64) Rule { return s.rules[i].On(t) }

// NameAt returns the name of the i-th rule at an instant: "window 100/24h (warm-up, day 2 of 7)" of a warm-up, and of others [Set.Name].
func (s *Set) NameAt(i int, t int64) string {
	r := s.rules[i].Rule
	if r.Kind != Warmup {
		return s.Name(i)
	}
	window, day, days := r.onDay(t)
	switch {
	case day == 0:
		return fmt.Sprintf("%s (warm-up, begins %s)", window, r.From)
	case day == days:
		return fmt.Sprintf("%s (warm-up, done)", window)
	}
	return fmt.Sprintf("%s (warm-up, day %d of %d)", window, day, days)
}
