package rules_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/internal/wallclock"
	"github.com/waterclock/waterclock/throttle"
)

const grace = 5 * time.Millisecond

func instant(t testing.TB, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMicro()
}

func hoursRule(hours, days, zone string) rules.Rule {
	return rules.Rule{Kind: rules.Hours, Hours: hours, Days: days, Zone: zone}
}

func perUnit(n int, unit wallclock.Unit, zone string) rules.Rule {
	return rules.Rule{Kind: rules.Calendar, Limit: n, Unit: unit, Period: unit.Nominal(), Zone: zone}
}

// Hours of a set are alternatives, and one rule of it; what no hours allow is moved to where the first of them opens. In the last
// grace before they close nothing starts, since it might start behind them.
func TestHoursAreAlternatives(t *testing.T) {
	set := rules.Compile(grace, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: time.Minute},
		hoursRule("08:00-21:00", "mon-fri", "Europe/Paris"), hoursRule("10:00-20:00", "sat-sun", "Europe/Paris"))
	if got := fmt.Sprint(set.Len(), " ", set.Name(1)); got != "2 hours 08:00-21:00 mon-fri Europe/Paris or 10:00-20:00 sat-sun Europe/Paris" {
		t.Error(got)
	}
	var st rules.State
	for _, test := range [][2]string{
		{"2026-11-27T12:00:00+01:00", "2026-11-27T12:00:00+01:00"},
		{"2026-11-27T07:59:59.999999+01:00", "2026-11-27T08:00:00+01:00"},
		{"2026-11-27T20:59:59.994999+01:00", "2026-11-27T20:59:59.994999+01:00"},
		{"2026-11-27T20:59:59.995+01:00", "2026-11-28T10:00:00+01:00"},
		{"2026-11-28T20:00:00+01:00", "2026-11-29T10:00:00+01:00"},
		{"2026-11-29T20:00:00+01:00", "2026-11-30T08:00:00+01:00"},
	} {
		at, binding := set.Earliest(&st, instant(t, test[0]), 1)
		if at != instant(t, test[1]) || binding >= 0 != (test[0] != test[1]) || binding >= 0 && binding != 1 {
			t.Errorf("from %s on it is %s by rule %d, want %s", test[0], time.UnixMicro(at), binding, test[1])
		}
	}
	set.Spend(&st, rules.At(instant(t, "2026-11-27T20:59:30+01:00")), 1, true)
	if at, binding := set.Earliest(&st, instant(t, "2026-11-27T20:59:31+01:00"), 1); at != instant(t, "2026-11-28T10:00:00+01:00") || binding != 1 {
		t.Errorf("a spacing that ends at night ends at %s by rule %d", time.UnixMicro(at), binding)
	}
	if from, until := set.Open(&st, instant(t, "2026-11-27T21:00:00+01:00")); from != instant(t, "2026-11-28T10:00:00+01:00") || until != instant(t, "2026-11-28T20:00:00+01:00") {
		t.Errorf("open from %s to %s", time.UnixMicro(from), time.UnixMicro(until))
	}
}

// Hours that drop refuse, hours that watch object, and neither makes anybody wait.
func TestHoursThatDoNotDefer(t *testing.T) {
	night, day := instant(t, "2026-11-27T03:00:00Z"), instant(t, "2026-11-27T12:00:00Z")
	drop, shadow := hoursRule("08:00-21:00", "", "UTC"), hoursRule("08:00-21:00", "", "UTC")
	drop.Drop, shadow.Shadow = true, true
	for _, test := range []struct {
		rule    rules.Rule
		refuses bool
	}{{drop, true}, {shadow, false}} {
		set := rules.Compile(grace, test.rule)
		var st rules.State
		if at, _ := set.Earliest(&st, night, 1); at != night || set.Closes() {
			t.Errorf("%v defers", test.rule)
		}
		if got := set.Refusing(&st, night, 1) == 0; got != test.refuses || set.Refusing(&st, day, 1) != -1 {
			t.Errorf("%v refuses at night: %v", test.rule, got)
		}
		if got := set.Objecting(&st, night, 1) == 0; got == test.refuses || set.Objecting(&st, day, 1) != -1 {
			t.Errorf("%v objects at night: %v", test.rule, got)
		}
		if set.Spend(&st, rules.At(day), 1, true); !st.Empty() {
			t.Errorf("%v remembers something", test.rule)
		}
	}
}

// A window by the calendar ends at midnight where its users are, and stands in the state as a fixed window does.
func TestCalendarWindows(t *testing.T) {
	for _, test := range []struct {
		rule      rules.Rule
		from, end string
	}{
		{perUnit(2, wallclock.Day, "Europe/Paris"), "2026-03-28T12:00:00+01:00", "2026-03-29T00:00:00+01:00"},
		{perUnit(2, wallclock.Day, "Europe/Paris"), "2026-03-29T12:00:00+02:00", "2026-03-30T00:00:00+02:00"},
		{perUnit(2, wallclock.Day, "Pacific/Apia"), "2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{perUnit(2, wallclock.Week, "Asia/Kathmandu"), "2026-11-26T12:00:00Z", "2026-11-29T18:15:00Z"},
		{perUnit(2, wallclock.Month, "America/New_York"), "2028-02-29T12:00:00Z", "2028-03-01T05:00:00Z"},
	} {
		set := rules.Compile(grace, test.rule)
		var st rules.State
		now, end := instant(t, test.from), instant(t, test.end)
		set.Spend(&st, rules.At(now), 1, true)
		if at, _ := set.Earliest(&st, now+1, 1); at != now+1 {
			t.Errorf("%v: the second may start at %s", test.rule, time.UnixMicro(at))
		}
		set.Spend(&st, rules.At(now+1), 1, true)
		recode(t, &st)
		if at, _ := set.Earliest(&st, now+2, 1); at != end || set.Full(&st) != end {
			t.Errorf("%v: the third may start at %s, want %s, and it is full at %s", test.rule, time.UnixMicro(at), test.end, time.UnixMicro(set.Full(&st)))
		}
		if at, _ := set.Earliest(new(rules.State), end-1, 1); at != end {
			t.Errorf("%v: within the last grace of a period one may start at %s", test.rule, time.UnixMicro(at))
		}
		set.Refund(&st, rules.At(now+1), 1, false)
		if at, _ := set.Earliest(&st, now+2, 1); at != now+2 {
			t.Errorf("%v: a slot that was given back is there at %s", test.rule, time.UnixMicro(at))
		}
		fixed := rules.Compile(grace, rules.Rule{Kind: rules.FixedWindow, Limit: 1, Period: time.Hour})
		if at, _ := fixed.Earliest(&st, now+2, 1); at <= now+2 {
			t.Errorf("%v became a fixed window, and that has forgotten", test.rule)
		}
	}
}

// Random hours, windows and other rules together: every slot is allowed by each, and the judge, who asks Go's clock, agrees.
func TestLocalRulesTogether(t *testing.T) {
	zones := []string{"Europe/Paris", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo"}
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 26))
		zone := zones[rnd.IntN(len(zones))]
		rs := []rules.Rule{hoursRule(fmt.Sprintf("%02d:30-%02d:15", rnd.IntN(24), rnd.IntN(24)), "mon-fri", zone)}
		judges := []throttle.Rule{throttle.Hours(rs[0].Hours, rs[0].Days, zone)}
		if rnd.IntN(2) == 0 {
			rs = append(rs, hoursRule("10:00-12:00,14:00-16:00", "sat,sun", zone))
			judges = append(judges, throttle.Hours("10:00-12:00,14:00-16:00", "sat-sun", zone))
		}
		unit := []wallclock.Unit{wallclock.Day, wallclock.Week, wallclock.Month}[rnd.IntN(3)]
		n := 1 + rnd.IntN(5)
		rs = append(rs, perUnit(n, unit, zone), rules.Rule{Kind: rules.Spacing, Limit: 1, Period: time.Hour})
		judges = append(judges, throttle.CalendarWindow(n, string(unit), zone), throttle.Spacing(time.Hour))
		set := rules.Compile(grace, rs...)
		var st rules.State
		var events []throttle.Event
		for now := instant(t, "2026-01-01T00:00:00Z") + rnd.Int64N(1<<44); len(events) < 60; {
			at, _ := set.Earliest(&st, now, 1)
			if again, _ := set.Earliest(&st, at, 1); again != at {
				t.Fatalf("seed %d: %s is not allowed then", seed, time.UnixMicro(at))
			}
			set.Spend(&st, rules.At(at), 1, true)
			recode(t, &st)
			events = append(events, throttle.Event{Subject: "u", At: time.UnixMicro(at + rnd.Int64N(grace.Microseconds()+1))})
			now = at + rnd.Int64N(1<<33)
		}
		for _, v := range throttle.Verify(events, judges) {
			t.Errorf("seed %d: %s", seed, v)
		}
	}
}

// Counters and metrics name a rule: its name stays short, however many intervals it has.
func TestManyIntervalsHaveAShortName(t *testing.T) {
	for hours, want := range map[string]string{
		"08:00-09:00,10:00-11:00,12:00-13:00":             "hours 08:00-09:00,10:00-11:00,12:00-13:00 UTC",
		"08:00-09:00,10:00-11:00,12:00-13:00,14:00-15:00": "hours 08:00-09:00,10:00-11:00,12:00-13:00,… UTC",
	} {
		if got := rules.Compile(0, rules.Rule{Kind: rules.Hours, Hours: hours, Zone: "UTC"}).HoursName(); got != want {
			t.Errorf("the name is %q, want %q", got, want)
		}
	}
}
