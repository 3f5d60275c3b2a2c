package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// errBroken makes the program exit with status 1.
var errBroken = errors.New("a limit was broken")

// A ruling is one line of the verdict: a limit, what was seen, and every place where it
// was broken.
type ruling struct {
	who, limit, observed string
	broken               []string
}

// judge prints what happened and whether every limit was kept. It is given the log of
// starts and nothing else that the queue believes, except what was dropped.
func (s *story) judge(ctx context.Context, out io.Writer) error {
	total, _ := s.offers.total()
	drops, err := s.inspector.Drops(ctx, total)
	if err != nil {
		return err
	}
	starts := s.journal.all()
	s.printWaits(out, starts)
	printDrops(out, drops)
	s.printWays(out, starts)
	printDay(out, starts, drops)
	waiting, err := s.printMoments(ctx, out, starts)
	if err != nil {
		return err
	}

	rulings := s.leakRulings(starts)
	rulings = append(rulings, atOnce(starts))
	rulings = append(rulings, userRulings(starts)...)
	rulings = append(rulings, s.nights(starts, len(waiting)), punctual(starts), s.nothingLost(starts, drops, waiting))
	rulings = append(rulings, s.providerRulings()...)
	return printRulings(out, rulings)
}

// leakRulings check the schools' leak rates. A leak is a promise about slots: a start is
// always a little after its slot.
func (s *story) leakRulings(starts []start) (rulings []ruling) {
	for _, school := range s.schools {
		var events []throttle.Event
		for _, st := range starts {
			if st.Tenant == school.name {
				events = append(events, throttle.Event{Subject: school.name, At: st.Slot})
			}
		}
		slices.SortFunc(events, func(a, b throttle.Event) int { return a.At.Compare(b.At) })
		most, _ := busiest(events, time.Second)
		rulings = append(rulings, ruling{
			who: school.name, limit: school.leak().String(),
			observed: fmt.Sprintf("%d in the busiest second, %.1f ms apart", most, millis(closest(events))),
			broken:   describe(throttle.Verify(events, []throttle.Rule{school.leak()})),
		})
	}
	return rulings
}

// atOnce checks how many jobs of a school ran at once, from when their handlers began and
// ended.
func atOnce(starts []start) ruling {
	runs := make([]throttle.Run, len(starts))
	for i, st := range starts {
		runs[i] = throttle.Run{Subject: st.Tenant, From: st.began, Until: st.ended}
	}
	most := workers * places * share.Percent / 100
	r := ruling{who: "a school", limit: fmt.Sprintf("%d of %d places", most, workers*places)}
	for _, excess := range throttle.VerifyConcurrency(runs, most) {
		r.broken = append(r.broken, excess.String())
	}
	r.observed = "never as many"
	if full := throttle.VerifyConcurrency(runs, most-1); len(full) > 0 {
		r.observed = fmt.Sprintf("%d at most: %s", most, full[0].Subject)
	}
	return r
}

// userRulings check the limits of every user of every school, on the starts that brought
// the user a notification: the others gave their slots back.
func userRulings(starts []start) (rulings []ruling) {
	events := userEvents(starts)
	for _, l := range everyUser() {
		r := ruling{who: "each user", limit: l.rule.String(), broken: describe(throttle.Verify(events, []throttle.Rule{l.rule}))}
		if l.window == 0 {
			r.observed = fmt.Sprintf("%.1f ms at least", millis(closest(events)))
		} else {
			most, who := busiest(events, here(l.window))
			r.observed = fmt.Sprintf("%d at most: %s", most, who)
		}
		rulings = append(rulings, r)
	}
	return rulings
}

func userEvents(starts []start) (events []throttle.Event) {
	for _, s := range starts {
		if !s.unseen {
			events = append(events, throttle.Event{Subject: s.User + " at " + s.Tenant, At: s.Started})
		}
	}
	return events
}

// punctual checks that no job started before its slot.
func punctual(starts []start) ruling {
	r := ruling{who: "each job", limit: "not before its slot"}
	var late []time.Duration
	for _, s := range starts {
		late = append(late, s.Started.Sub(s.Slot))
		if s.Started.Before(s.Slot) {
			r.broken = append(r.broken, fmt.Sprintf("%s started %v before its slot", s.ID, s.Slot.Sub(s.Started)))
		}
	}
	r.observed = fmt.Sprintf("%.1f ms after it in the median, p99 %.1f ms", millis(quantile(late, 0.5)), millis(quantile(late, 0.99)))
	return r
}

// nothingLost checks that every job that was offered was either started or dropped, or waits for a morning.
func (s *story) nothingLost(starts []start, drops []queue.Drop, waiting []string) ruling {
	fate := make(map[string]string)
	for _, id := range waiting {
		fate[id] = "waiting"
	}
	for _, d := range drops {
		fate[d.ID] = "dropped"
	}
	started := 0
	for _, st := range starts {
		for _, id := range members(st) {
			if fate[id] == "" {
				started++
			}
			fate[id] = "started"
		}
	}
	r := ruling{who: "each job", limit: "started, or dropped with a reason"}
	for _, id := range s.offers.ids {
		if fate[id] == "" {
			r.broken = append(r.broken, id+" was lost")
		}
	}
	r.observed = fmt.Sprintf("%s offered = %s + %s, %d wait", thousands(len(s.offers.ids)), thousands(started), thousands(len(drops)), len(waiting))
	return r
}

// members are the jobs that started as one: those of a digest, or the job alone.
func members(st start) (ids []string) {
	for _, m := range st.Digest {
		ids = append(ids, m.ID)
	}
	if ids == nil {
		ids = []string{st.ID}
	}
	return ids
}

func describe(violations []throttle.Violation) []string {
	texts := make([]string, len(violations))
	for i, v := range violations {
		texts[i] = v.String()
	}
	return texts
}

func printRulings(out io.Writer, rulings []ruling) error {
	fmt.Fprintf(out, "\nThe verdict of throttle.Verify, which knows only the log of starts and what the providers saw:\n\n")
	fmt.Fprintf(out, "  %-11s%-35s%s\n", "", "limit", "observed")
	broken := 0
	for _, r := range rulings {
		verdict := "kept"
		if len(r.broken) > 0 {
			verdict = fmt.Sprintf("BROKEN (%d)", len(r.broken))
			broken++
		}
		fmt.Fprintf(out, "  %-11s%-35s%-48s%s\n", r.who, r.limit, r.observed, verdict)
		for _, detail := range r.broken[:min(3, len(r.broken))] {
			fmt.Fprintf(out, "      %s\n", detail)
		}
	}
	if broken > 0 {
		return fmt.Errorf("%w: %d of %d", errBroken, broken, len(rulings))
	}
	fmt.Fprintf(out, "\nAll %d limits were kept.\n", len(rulings))
	return nil
}

// printWaits shows that one school's flood is no other's.
func (s *story) printWaits(out io.Writer, starts []start) {
	fmt.Fprintf(out, "\nHow long the jobs waited:\n\n  %-32s%9s%12s%12s\n", "", "started", "median", "p99")
	waits := make(map[string][]time.Duration)
	for _, st := range starts {
		kind := st.Tenant + ", " + strings.TrimPrefix(st.Type, "push:")
		waits[kind] = append(waits[kind], st.Waited)
	}
	for _, kind := range slices.Sorted(maps.Keys(waits)) {
		w := waits[kind]
		fmt.Fprintf(out, "  %-32s%9s%12s%12s\n", kind, thousands(len(w)), span(quantile(w, 0.5)), span(quantile(w, 0.99)))
	}
}

// printDrops shows which jobs were dropped, and why.
func printDrops(out io.Writer, drops []queue.Drop) {
	meaning := map[queue.Reason]string{
		queue.ReasonFull:      "as many waited as may; the receipt said so at once",
		queue.ReasonExpired:   "the slot would have been after the latest start",
		queue.ReasonCollapsed: "a newer job took the place",
		queue.ReasonRule:      "refused by ",
	}
	counts := make(map[string]int)
	for _, d := range drops {
		counts[fmt.Sprintf("%-8s%-11s%s", d.Tenant, d.Reason, meaning[d.Reason]+d.Rule)]++
	}
	fmt.Fprintf(out, "\nWhat was dropped:\n\n")
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(out, "  %5s  %s\n", thousands(counts[what]), what)
	}
}

// printWays shows how the jobs came and went.
func (s *story) printWays(out io.Writer, starts []start) {
	var ways []string
	for _, door := range slices.Sorted(maps.Keys(s.offers.door)) {
		ways = append(ways, fmt.Sprintf("%s through %s", thousands(s.offers.door[door]), door))
	}
	var by [workers]int
	for _, st := range starts {
		by[st.worker-1]++
	}
	fmt.Fprintf(out, "\nOffered: %s. Started: %s by worker 1, %s by worker 2.\n",
		strings.Join(ways, ", "), thousands(by[0]), thousands(by[1]))
}

// busiest returns the most events of one subject in any rolling window of that length,
// and whose they are. Events come in order of time.
func busiest(events []throttle.Event, window time.Duration) (most int, who string) {
	recent := make(map[string][]time.Time)
	for _, e := range events {
		times := append(recent[e.Subject], e.At)
		for e.At.Sub(times[0]) >= window {
			times = times[1:]
		}
		recent[e.Subject] = times
		if len(times) > most {
			most, who = len(times), e.Subject
		}
	}
	return most, who
}

// closest returns the least time between two events of one subject, 0 if there are no two.
func closest(events []throttle.Event) time.Duration {
	var gaps []time.Duration
	last := make(map[string]time.Time)
	for _, e := range events {
		if before, ok := last[e.Subject]; ok {
			gaps = append(gaps, e.At.Sub(before))
		}
		last[e.Subject] = e.At
	}
	if len(gaps) == 0 {
		return 0
	}
	return slices.Min(gaps)
}

func quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(values), cmp.Compare)
	return sorted[int(q*float64(len(sorted)-1))]
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func span(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.0f ms", millis(d))
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
