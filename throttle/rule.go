package throttle

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/internal/wallclock"
)

// ErrInvalidRule is returned when a rule has numbers that mean nothing, such as zero
// per second.
var ErrInvalidRule = errors.New("throttle: invalid rule")

// Kind names an algorithm, as policies do.
type Kind string

// The kinds of rules.
const (
	KindLeak           Kind = "leak"
	KindTokenBucket    Kind = "token_bucket"
	KindWindow         Kind = "window"
	KindSpacing        Kind = "spacing"
	KindFixedWindow    Kind = "fixed_window"
	KindSlidingCounter Kind = "sliding_counter"
	KindHours          Kind = "hours"
	KindCalendar       Kind = "calendar" // written as window 3/day
	KindWarmup         Kind = "warmup"
)

// A Rule is one limit. Make it with [Leak], [TokenBucket], [Window], [Spacing],
// [FixedWindow], [SlidingCounter], [CalendarWindow], [Hours] or [Warmup]. The zero value is not a rule.
//
// A rule over its limit defers: its slot lies ahead. [Rule.OrDrop] makes it drop instead,
// [Rule.AsShadow] makes it only report, and [Rule.CountingDropped] makes it count refused actions
// too.
type Rule struct {
	kind    Kind
	limit   int
	period  time.Duration
	burst   int // of a token bucket
	buckets int // of a sliding counter
	drop    bool
	shadow  bool
	counts  bool
	ramp    time.Duration // of a leak

	unit                        wallclock.Unit // of a calendar window
	zone, hours, days, holidays string
	within                      string // of the own hours of users
	from, windows               string // of a warm-up
}

// Leak lets n actions start per period, evenly spaced. Idle time accumulates nothing: after an
// idle hour there is no burst. It is the leaky bucket as a queue (GCRA without tolerance).
// Fractions of a microsecond are carried along, so that 7000 a second is exactly 7000 a second.
func Leak(n int, per time.Duration) Rule {
	return Rule{kind: KindLeak, limit: n, period: per}
}

// TokenBucket holds up to burst tokens and gains n per period, continuously. An action
// takes as many as it costs, or waits for them. After an idle time burst actions may
// start at once: in any span d at most burst + n·d/period start. (GCRA: the bucket is
// one stored instant, and nothing ever refills it.)
func TokenBucket(n int, per time.Duration, burst int) Rule {
	return Rule{kind: KindTokenBucket, limit: n, period: per, burst: burst}
}

// Window lets at most n actions start in any period of that length, wherever it
// begins: the rolling window, exact. An action exactly one period old no longer counts.
func Window(n int, per time.Duration) Rule {
	return Rule{kind: KindWindow, limit: n, period: per}
}

// Spacing keeps any two actions at least d apart, whatever they cost.
func Spacing(d time.Duration) Rule {
	return Rule{kind: KindSpacing, limit: 1, period: d}
}

// FixedWindow lets at most n actions start in each period, counted from the Unix epoch:
// an hour begins on the hour and 24h at midnight UTC. The cheapest rule, and one that
// lets 2n through across an edge: for a limit on any hour use [Window].
func FixedWindow(n int, per time.Duration) Rule {
	return Rule{kind: KindFixedWindow, limit: n, period: per}
}

// SlidingCounter approximates [Window] with a few counters instead of a log of n slots.
// With 2 buckets it is the count of this period plus that of the period before, weighted
// by how much of it still overlaps the window; the estimate never exceeds n. With more
// it is a ring: the period is cut into that many buckets (an hour into 3 of 20 minutes),
// and no run of so many consecutive buckets ever counts more than n.
func SlidingCounter(n int, per time.Duration, buckets int) Rule {
	return Rule{kind: KindSlidingCounter, limit: n, period: per, buckets: buckets}
}

// CalendarWindow lets at most n actions start in each "day", "week" (from Monday on) or "month" of a zone such as Europe/Paris: from
// midnight to midnight on the clocks there, whether that day has 23, 24 or 25 hours. As with [FixedWindow], 2n may
// start around an edge. The store in Redis gives no slots further ahead than ten of them.
func CalendarWindow(n int, per, zone string) Rule {
	unit := wallclock.Unit(per)
	return Rule{kind: KindCalendar, limit: n, unit: unit, period: unit.Nominal(), zone: zone}
}

// Hours lets actions start while the clocks of a zone show such hours: "08:00-21:00", several with commas between them, or across
// midnight as in "22:00-06:00". Days are such as "mon-fri" or "sat,sun", and "" for all; what goes on behind
// midnight belongs to the day on which it began. On holidays, "2026-12-25" or "12-25" for every year, nothing starts from midnight to
// midnight. What the clocks show twice is open twice, and what they skip does not exist.
//
// Hours of one subject are alternatives: one of them has to be open. The store in Redis does not know them.
func Hours(hours, days, zone string, holidays ...string) Rule {
	r := rules.Rule{Kind: rules.Hours, Hours: hours, Days: days, Zone: zone, Holidays: strings.Join(holidays, ",")}.Tidied()
	return Rule{kind: KindHours, zone: zone, hours: r.Hours, days: r.Days, holidays: r.Holidays}
}

// UserHours are the hours of each user: all but the quiet ones, by the user's own clock, and within others such as "08:00-21:00" if that is not
// empty. It is for queues, which know users' clocks, as [CalendarWindow] of the zone "user" and [Hours] of it are.
func UserHours(within, days string, holidays ...string) Rule {
	return fromPlain(rules.Rule{Kind: rules.Hours, Hours: rules.OfUser, Within: within, Days: days, Holidays: strings.Join(holidays, ",")})
}

// Warmup is a window that becomes another one on some days, counted from a date: the volume of a new sender rises over days. In the
// windows "1:50/24h,2:100/24h,7:1000/24h" it is 50 in any 24 hours on the first day and before it, 100 from the second day on, and 1000
// from the seventh day on, for good. The first day is 1, and they ascend. The windows are those of [Window], or all of them are those of
// [CalendarWindow], "1:50/day,2:100/day". Days begin at midnight in the zone; "" means UTC. What was counted stays counted when the
// next window comes. By the calendar, the store in Redis gives no slots further ahead than ten periods.
func Warmup(from, windows, zone string) Rule {
	return fromPlain(rules.Rule{Kind: rules.Warmup, From: from, Windows: windows, Zone: zone})
}

// Ramping returns a leak as one whose rate grows: after it has stood still for longer than d (hours open, a pause ends) it begins
// with a tenth of its rate, which grows evenly to the whole within d. Services ask for that where traffic returns: FCM, for one. d
// is from 1 s to a week.
func (r Rule) Ramping(d time.Duration) Rule {
	r.ramp = d
	return r
}

// OrDrop returns the rule as one that drops an action where it would defer it.
func (r Rule) OrDrop() Rule {
	r.drop = true
	return r
}

// AsShadow returns the rule as one that only reports: it is evaluated and named in
// [Decision].Shadow, and no action waits for it. The shadow rules of a subject form a second
// limiter: an action that they would have refused spends nothing of them. So a limit can be tried
// out on live traffic.
func (r Rule) AsShadow() Rule {
	r.shadow = true
	return r
}

// CountingDropped returns the rule with refused actions counted as well: a caller that keeps
// asking is refused until the flood ends, as in ClassDojo's rolling-rate-limiter. An action that
// [Limiter.Allow] defers or drops counts as refused; an action that [Limiter.Reserve] defers does
// not.
func (r Rule) CountingDropped() Rule {
	r.counts = true
	return r
}

// Kind returns the algorithm of the rule. The zero Rule has none.
func (r Rule) Kind() Kind { return r.kind }

// Limit returns how many actions the rule admits per [Rule.Period]: 1 for a spacing, and 0 for hours. That of a warm-up is the largest of
// its windows; see [Rule.On].
func (r Rule) Limit() int { return r.limit }

// Period returns the time that [Rule.Limit] is for. A leak and a token bucket are a rate,
// Limit/Period; a spacing is a Period long. That of a calendar window is the usual one, 24h for a day, and the
// longest one of a month; that of hours is 0, and that of a warm-up the longest of its windows.
func (r Rule) Period() time.Duration { return r.period }

// Burst returns how many tokens a token bucket holds, and 0 for other rules.
func (r Rule) Burst() int { return r.burst }

// Ramp returns how long the rate of a leak grows after it stood still, see [Rule.Ramping]; 0 for other rules.
func (r Rule) Ramp() time.Duration { return r.ramp }

// Buckets returns how many buckets a sliding counter has, and 0 for other rules.
func (r Rule) Buckets() int { return r.buckets }

// Drops reports whether the rule drops what is over its limit, see [Rule.OrDrop].
func (r Rule) Drops() bool { return r.drop }

// Shadows reports whether the rule is a shadow rule, see [Rule.AsShadow].
func (r Rule) Shadows() bool { return r.shadow }

// CountsDropped reports whether the rule counts what was refused too, see
// [Rule.CountingDropped].
func (r Rule) CountsDropped() bool { return r.counts }

// Zone returns the zone of a calendar window, of hours or of a warm-up that names one, and "" for other rules.
func (r Rule) Zone() string { return r.zone }

// Unit returns "day", "week" or "month" of a calendar window, and of a warm-up of such windows; "" for other rules.
func (r Rule) Unit() string { return string(r.unit) }

// Within returns the hours that a user's own lie within, of [UserHours]; "" for other rules.
func (r Rule) Within() string { return r.within }

// Hours returns what [Hours] was given, in one form, and "" for other rules. Several hours, days and holidays stand between commas.
func (r Rule) Hours() (hours, days, holidays string) { return r.hours, r.days, r.holidays }

// Warmup returns what [Warmup] was given, in one form, and "" for other rules.
func (r Rule) Warmup() (from, windows string) { return r.from, r.windows }

// On returns the window of a warm-up that holds at an instant, with the options of the warm-up, and all other rules as they are.
func (r Rule) On(t time.Time) Rule { return fromPlain(r.plain().On(t.UnixMicro())) }

// String returns the rule as it is written in a policy, without its options: "leak
// 50/s", "spacing 3s", "token_bucket 10/1m burst 20", "window 3/day Europe/Paris", "hours 08:00-21:00 mon-fri
// Europe/Paris", "warmup 2026-12-01 1:50/24h,7:1000/24h". Decisions name rules this way.
func (r Rule) String() string { return r.plain().String() }

// plain returns the rule as package rules knows it.
func (r Rule) plain() rules.Rule {
	return rules.Rule{
		Kind: rules.Kind(r.kind), Limit: r.limit, Period: r.period, Burst: r.burst, Buckets: r.buckets,
		Drop: r.drop, Shadow: r.shadow, Counts: r.counts, Ramp: r.ramp,
		Unit: r.unit, Zone: r.zone, Hours: r.hours, Days: r.days, Holidays: r.holidays, Within: r.within,
		From: r.from, Windows: r.windows,
	}
}

// fromPlain returns the rule that package rules knows, as it is.
func fromPlain(r rules.Rule) Rule {
	r = r.Tidied()
	return Rule{
		kind: Kind(r.Kind), limit: r.Limit, period: r.Period, burst: r.Burst, buckets: r.Buckets, drop: r.Drop, shadow: r.Shadow, counts: r.Counts, ramp: r.Ramp,
		unit: r.Unit, zone: r.Zone, hours: r.Hours, days: r.Days, holidays: r.Holidays, within: r.Within,
		from: r.From, windows: r.Windows,
	}
}

// slackens reports whether the rule holds for actions that start some time after their slots: it is widened, or counts slots. A shadow rule
// looks at slots.
func (r Rule) slackens(slack time.Duration) bool {
	switch r.kind {
	case KindLeak, KindTokenBucket:
		return true
	}
	return r.logged() || r.shadow || r.part() > guardFactor*slack && !r.counts
}

// logged reports whether the rule looks at slots: windows, also those of a warm-up, and spacings.
func (r Rule) logged() bool {
	return r.kind == KindWindow || r.kind == KindSpacing || r.kind == KindWarmup && r.unit == ""
}

// guardFactor is how many times as long as a slack a period is at least of whose end so much has no slots.
const guardFactor = 4

// part returns how long the periods are by which a rule counts: those of a fixed window or, about, by the calendar, and the buckets of a
// sliding counter; 0 for other rules.
func (r Rule) part() time.Duration {
	switch {
	case r.kind == KindFixedWindow, r.unit != "", r.kind == KindSlidingCounter && r.buckets == 2:
		return r.period
	case r.kind == KindSlidingCounter:
		return (r.period + time.Duration(r.buckets)*time.Microsecond - 1) / time.Duration(r.buckets) / time.Microsecond * time.Microsecond
	}
	return 0
}

// most returns the most that the rule can ever admit at once.
func (r Rule) most() int { return r.plain().Most() }

// Validate returns an error wrapping [ErrInvalidRule] that names what is wrong with
// the rule and what would be right, or nil.
func (r Rule) Validate() error {
	if r.kind == "" {
		return fmt.Errorf("%w: the zero Rule; make one with Leak, Window and so on", ErrInvalidRule)
	}
	if wrong := r.plain().Wrong(); wrong != "" {
		return fmt.Errorf("%w: %s: %s", ErrInvalidRule, r, wrong)
	}
	return nil
}
