package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/wallclock"
)

// Kind names an algorithm.
type Kind string

const (
	Leak           Kind = "leak"
	TokenBucket    Kind = "token_bucket"
	Window         Kind = "window"
	Spacing        Kind = "spacing"
	FixedWindow    Kind = "fixed_window"
	SlidingCounter Kind = "sliding_counter"
	Hours          Kind = "hours"
	Calendar       Kind = "calendar" // a window by the calendar, written as window 3/day
	Warmup         Kind = "warmup"   // a window that becomes another one on some days
)

// A Rule is one limit. Package throttle describes the kinds and checks the numbers: here
// they are taken as valid.
type Rule struct {
	Kind    Kind
	Limit   int           // actions per period
	Period  time.Duration // whole microseconds
	Burst   int           // the tokens that a token bucket holds
	Buckets int           // of a sliding counter
	Drop    bool          // refuses what it would defer
	Shadow  bool          // watches, and nobody waits for it
	Counts  bool          // counts refused actions too
	Guard   time.Duration // of a fixed window or a sliding counter: no slot lies within so much of the end of a period (of a bucket). Of a warm-up: its slack
	Ramp    time.Duration // of a leak: how long its rate grows after it stood still for longer; 0 for not

	Unit                  wallclock.Unit // of a calendar window, whose period is the usual length of it; of a warm-up of such windows
	Zone                  string         // of a calendar window, of hours, and of a warm-up, which has UTC without it
	Hours, Days, Holidays string         // of hours, as package wallclock reads them; [OfUser] for the own hours of the user
	Within                string         // of the own hours of a user: they lie within these

	// Of a warm-up: the date of its first day, and its windows with the days from which they hold, as "1:50/24h,2:100/24h".
	// Its Limit is the largest of them and its Period the longest ([Rule.Tidied]).
	From, Windows string
}

// String returns the rule as a policy writes it, without its options: "leak 50/s",
// "spacing 3s", "token_bucket 10/1m burst 20", "hours 08:00-21:00 mon-fri Europe/Paris", "warmup 2026-12-01 1:50/24h,7:1000/24h".
func (r Rule) String() string {
	switch r.Kind {
	case "":
		return "no rule"
	case Granted:
		return string(r.Kind)
	case TokenBucket:
		return fmt.Sprintf("%s %s burst %d", r.Kind, r.Rate(), r.Burst)
	case Leak:
		if r.Ramp > 0 {
			return fmt.Sprintf("%s %s ramp %s", r.Kind, r.Rate(), FormatPeriod(r.Ramp))
		}
	case SlidingCounter:
		return fmt.Sprintf("%s %s buckets %d", r.Kind, r.Rate(), r.Buckets)
	case Calendar:
		return fmt.Sprintf("%s %s %s", Window, r.Rate(), r.Zone)
	case Hours:
		if r.Hours == OfUser {
			within := ""
			if r.Within != "" {
				within = "within " + r.Within
			}
			return strings.Join(slices.DeleteFunc([]string{string(r.Kind), r.Hours, r.Days, within}, func(word string) bool { return word == "" }), " ")
		}
		return strings.Join(slices.DeleteFunc([]string{string(r.Kind), r.Hours, r.Days, r.Zone}, func(word string) bool { return word == "" }), " ")
	case Warmup:
		return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.Kind, r.From, r.Windows, r.Zone))
	}
	return string(r.Kind) + " " + r.Rate()
}

// brief returns the rule as counters name it: of hours with more than three intervals, or a warm-up of more windows, the first three.
func (r Rule) brief() string {
	const most = 3
	for _, hours := range []*string{&r.Hours, &r.Within, &r.Windows} {
		if all := strings.Split(*hours, ","); len(all) > most {
			*hours = strings.Join(all[:most], ",") + ",…"
		}
	}
	return r.String()
}

// Rate returns what stands beside the kind in a policy: "10/1m", "3s".
func (r Rule) Rate() string {
	switch {
	case r.Kind == Spacing:
		return FormatPeriod(r.Period)
	case r.Kind == Hours:
		return r.Hours
	case r.Kind == Calendar:
		return fmt.Sprintf("%d/%s", r.Limit, r.Unit)
	case r.Kind == Leak && r.Period == time.Second:
		return fmt.Sprintf("%d/s", r.Limit)
	}
	return fmt.Sprintf("%d/%s", r.Limit, FormatPeriod(r.Period))
}

// FormatPeriod writes 1m0s as 1m and 24h0m0s as 24h.
func FormatPeriod(d time.Duration) string {
	s := d.String()
	if m, found := strings.CutSuffix(s, "m0s"); found {
		s = m + "m"
	}
	if h, found := strings.CutSuffix(s, "h0m"); found {
		s = h + "h"
	}
	return s
}

// Most returns the most that the rule can ever admit at once.
func (r Rule) Most() int {
	switch r.Kind {
	case Leak, Spacing, Hours:
		return 1
	case TokenBucket:
		return r.Burst
	}
	return r.Limit
}

// Century is the longest that anybody is made to wait.
const Century = 100 * 366 * 24 * time.Hour

// Takes returns how long the rule's rate takes for cost actions, at most two centuries.
func (r Rule) Takes(cost int) time.Duration {
	n := time.Duration(r.Limit)
	each, rest := r.Period/n, r.Period%n
	if each > 2*Century/time.Duration(cost) {
		return 2 * Century
	}
	return each*time.Duration(cost) + time.Duration(float64(rest)*float64(cost)/float64(n))
}

// Impossible reports whether the rule can never admit the cost. A leak cannot when the
// cost takes it more than a century. A spacing and hours admit every cost, and so does a
// shadow rule.
func (r Rule) Impossible(cost int) bool {
	switch {
	case r.Shadow || r.Kind == Spacing || r.Kind == Hours || r.Kind == Granted:
		return false
	case r.Kind == Leak:
		return r.Takes(max(cost, 1)) > Century
	}
	return cost > r.Most()
}
