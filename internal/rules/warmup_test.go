package rules_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/throttle"
)

const hour = int64(time.Hour / time.Microsecond)

// dayOf returns the day of a warm-up that begins on 2026-12-01, by what package time says of the zone.
func dayOf(t testing.TB, zone string, at int64) int {
	t.Helper()
	where, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	year, month, day := time.UnixMicro(at).In(where).Date()
	return int(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Sub(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))/(24*time.Hour)) + 1
}

// A warm-up lets as many start as the window of each day admits: the first one before it begins too, the last one for good. What
// one window has counted the next one knows.
func TestAWarmupRisesByDays(t *testing.T) {
	const from, windows = "2026-12-01", "1:50/24h,2:100/24h,7:1000/24h"
	for _, zone := range []string{"", "Asia/Kathmandu", "America/Los_Angeles"} {
		set := rules.Compile(grace, rules.Rule{Kind: rules.Warmup, From: from, Windows: windows, Zone: zone})
		var st rules.State
		begin, _ := time.ParseInLocation(time.DateOnly, "2026-11-29", location(t, zone))
		slots := spendAll(set, &st, begin.UnixMicro(), begin.AddDate(0, 0, 12).UnixMicro(), 1)
		counted := make(map[int]int)
		for _, at := range slots {
			counted[dayOf(t, zone, at)]++
		}
		for day, want := range map[int]int{-1: 50, 0: 50, 1: 50, 2: 100, 3: 100, 4: 100, 5: 100, 6: 100, 7: 1000, 8: 1000, 9: 1000} {
			if counted[day] != want {
				t.Errorf("%q, day %d: %d start, want %d", zone, day, counted[day], want)
			}
		}
		var steps []int64 // when more start than a day before
		for i, at := range slots {
			if i > 0 && at-slots[i-1] > hour {
				steps = append(steps, at)
			}
		}
		for _, at := range steps {
			if text := time.UnixMicro(at).In(location(t, zone)).Format("15:04:05"); text != "00:00:00" {
				t.Errorf("%q: starts begin at %s", zone, text)
			}
		}
	}
}

func location(t testing.TB, zone string) *time.Location {
	t.Helper()
	where, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	return where
}

// Where clocks are changed a day of a warm-up is as long as it is there.
func TestAWarmupStepsAtMidnightOfItsZone(t *testing.T) {
	for _, test := range []struct{ zone, from, step string }{
		{"Europe/Paris", "2026-10-25", "2026-10-25T23:00:00Z"},        // 25 hours
		{"Europe/Paris", "2026-03-29", "2026-03-29T22:00:00Z"},        // 23 hours
		{"America/Santiago", "2026-09-05", "2026-09-06T04:00:00Z"},    // midnight of the 6th does not exist
		{"Australia/Lord_Howe", "2026-04-05", "2026-04-05T13:30:00Z"}, // 24 hours and a half
		{"", "2026-10-25", "2026-10-26T00:00:00Z"},
	} {
		set := rules.Compile(grace, rules.Rule{Kind: rules.Warmup, From: test.from, Windows: "1:3/1000h,2:5/1000h", Zone: test.zone})
		var st rules.State
		begin := instant(t, test.from+"T00:00:00Z") - 30*hour
		slots := spendAll(set, &st, begin, begin+200*hour, 1)
		if step := instant(t, test.step); len(slots) != 5 || slots[2] != begin || slots[3] != step || slots[4] != step {
			t.Errorf("%s %s: slots at %v, want three at once and two at %s", test.zone, test.from, slots, test.step)
		}
	}
}

// What a day has counted stays counted when the next one comes, whatever the lengths of the windows are: also where a shorter window
// would have forgotten it.
func TestAWarmupForgetsNothing(t *testing.T) {
	for _, windows := range []string{"1:50/24h,2:100/24h", "1:50/day,2:100/day", "1:10/1h,2:100/24h", "1:50/week,2:100/week"} {
		set := rules.Compile(grace, rules.Rule{Kind: rules.Warmup, From: "2026-12-01", Windows: windows})
		var st rules.State
		begin := instant(t, "2026-12-01T00:00:00Z")
		until := begin + 24*hour
		first := len(spendAll(set, &st, until-5*hour, until, 1))
		var read rules.State
		if err := read.Decode(string(st.Append(nil))); err != nil {
			t.Fatal(err)
		}
		if last, full := read.Last(), set.Full(&read); !strings.Contains(windows, "day") && full < last+24*hour {
			t.Errorf("%s: all is forgotten %v after the last start", windows, time.Duration(full-last)*time.Microsecond)
		}
		want := 100 - first
		if strings.Contains(windows, "day") {
			want = 100 // another day has another count
		}
		if n := len(spendAll(set, &read, until, until+hour, 1)); n != want {
			t.Errorf("%s: %d started on the first day, and %d at once on the second, want %d", windows, first, n, want)
		}
	}
}

// A plain window that a warm-up takes the place of has counted for it, and the other way round.
func TestAWarmupInThePlaceOfAWindow(t *testing.T) {
	window := rules.Compile(grace, rules.Rule{Kind: rules.Window, Limit: 30, Period: 24 * time.Hour})
	warm := rules.Compile(grace, rules.Rule{Kind: rules.Warmup, From: "2026-12-01", Windows: "1:50/24h,2:100/24h"})
	var st rules.State
	at := instant(t, "2026-12-01T05:00:00Z")
	for _, step := range []struct {
		set  *rules.Set
		want int
	}{{window, 30}, {warm, 20}, {window, 0}} {
		if n := len(spendAll(step.set, &st, at, at+hour, 1)); n != step.want {
			t.Errorf("%d start, want %d", n, step.want)
		}
		at += hour
	}
}

// A cost that only a later window admits waits for its day; one that none admits is impossible.
func TestCostsOfAWarmup(t *testing.T) {
	set := rules.Compile(grace, rules.Rule{Kind: rules.Warmup, From: "2026-12-01", Windows: "1:50/24h,3:100/24h"})
	var st rules.State
	at := instant(t, "2026-12-01T05:00:00Z")
	if slot, _ := set.Earliest(&st, at, 80); slot != instant(t, "2026-12-03T00:00:00Z") {
		t.Errorf("a cost of 80 may start at %v", time.UnixMicro(slot).UTC())
	}
	if set.Impossible(100) >= 0 || set.Impossible(101) != 0 {
		t.Error("100 is the largest cost")
	}
	if room := set.Room(&st, 0, at); room != 50 {
		t.Errorf("room for %d on the first day", room)
	}
	set.Spend(&st, rules.At(at), 30, true)
	if room, next := set.Room(&st, 0, at), set.NextFree(&st, 0, at, 20); room != 20 || next != at+24*hour+grace.Microseconds() {
		t.Errorf("room for %d, and more at %v", room, time.UnixMicro(next).UTC())
	}
	set.Refund(&st, rules.At(at), 30, false)
	if room := set.Room(&st, 0, at); room != 50 {
		t.Errorf("room for %d after a refund", room)
	}
}

// Where a later window is tighter, that one holds from its day on, also for starts that come a grace after their slots.
func TestAWarmupThatFallsBack(t *testing.T) {
	set := rules.Compile(grace, rules.Rule{Kind: rules.Warmup, From: "2026-12-01", Windows: "1:50/1h,2:10/24h,3:20/24h"})
	var st rules.State
	step := instant(t, "2026-12-02T00:00:00Z")
	if at, _ := set.Earliest(&st, step-grace.Microseconds(), 1); at != step {
		t.Errorf("a slot %d µs before the step", step-at)
	}
	first, second := spendAll(set, &st, step-2*hour, step, 1), spendAll(set, &st, step, step+24*hour, 1)
	if again := step + 23*hour + grace.Microseconds(); len(first) != 100 || len(second) != 10 || second[0] < again-grace.Microseconds() || second[0] > again+grace.Microseconds() {
		t.Errorf("%d start in the last two hours of the first day, and on the second at %v", len(first), second)
	}
	if room := set.Room(&st, 0, step+72*hour); room != 20 {
		t.Errorf("room for %d in the end", room)
	}
}

// The judge, which shares no code with the rule, finds nothing; nor does anything start later than it has to.
func TestTheJudgeOfWarmups(t *testing.T) {
	for seed := range uint64(sample.Size(50, 200, 200)) {
		rnd := rand.New(rand.NewPCG(seed, 77))
		zone := []string{"", "Europe/Paris", "America/St_Johns"}[rnd.IntN(3)]
		unit := []string{"24h", "12h", "day", "week"}[rnd.IntN(4)]
		windows, day := "", 1
		for range 1 + rnd.IntN(4) {
			windows += fmt.Sprintf(",%d:%d/%s", day, 1+rnd.IntN(30), unit)
			day += 1 + rnd.IntN(3)
		}
		r := rules.Rule{Kind: rules.Warmup, From: "2026-10-23", Windows: windows[1:], Zone: zone}
		set := rules.Compile(0, r)
		var st rules.State
		var events []throttle.Event
		now := instant(t, "2026-10-22T00:00:00Z")
		judge := []throttle.Rule{throttle.Warmup(r.From, r.Windows, r.Zone)}
		for range 300 {
			now += rnd.Int64N(2 * hour)
			at, binding := set.Earliest(&st, now, 1)
			events = append(events, throttle.Event{Subject: "u", At: time.UnixMicro(at)})
			if binding >= 0 {
				early := append(events[:len(events)-1:len(events)-1], throttle.Event{Subject: "u", At: time.UnixMicro(at - 1)})
				if found := throttle.Verify(early, judge); len(found) == 0 {
					t.Fatalf("seed %d, %v: nothing forbids a start before %v", seed, r, time.UnixMicro(at).UTC())
				}
			}
			set.Spend(&st, rules.At(at), 1, true)
			recode(t, &st)
			now = at
		}
		for _, v := range throttle.Verify(events, judge) {
			t.Fatalf("seed %d: %v", seed, v)
		}
	}
}

// A warm-up is named by the window of the day, and says which day it is.
func TestNamesOfAWarmup(t *testing.T) {
	r := rules.Rule{Kind: rules.Warmup, From: "2026-12-01", Windows: " 1:50/24h0m0s, 2:100/24h,7:1000/24h", Zone: "Europe/Paris"}.Tidied()
	set := rules.Compile(grace, r)
	if got, want := set.Name(0), "warmup 2026-12-01 1:50/24h,2:100/24h,7:1000/24h Europe/Paris"; got != want || r.String() != want {
		t.Errorf("%q and %q", got, r.String())
	}
	for at, want := range map[string]string{
		"2026-11-30T22:59:59Z": "window 50/24h (warm-up, begins 2026-12-01)",
		"2026-11-30T23:00:00Z": "window 50/24h (warm-up, day 1 of 7)",
		"2026-12-01T23:00:00Z": "window 100/24h (warm-up, day 2 of 7)",
		"2026-12-05T12:00:00Z": "window 100/24h (warm-up, day 5 of 7)",
		"2026-12-06T23:00:00Z": "window 1000/24h (warm-up, done)",
		"2030-12-06T23:00:00Z": "window 1000/24h (warm-up, done)",
	} {
		if got := set.NameAt(0, instant(t, at)); got != want {
			t.Errorf("%s: %q, want %q", at, got, want)
		}
	}
}

// The guess when so many have started comes close to what the rule does.
func TestAfterOfAWarmup(t *testing.T) {
	for _, windows := range []string{"1:50/24h,2:100/24h,7:1000/24h", "1:50/day,2:100/day,7:1000/day", "1:7/1h,3:20/1h"} {
		set := rules.Compile(grace, rules.Rule{Kind: rules.Warmup, From: "2026-12-01", Windows: windows})
		begin := instant(t, "2026-12-01T00:00:00Z")
		var st rules.State
		slots := spendAll(set, &st, begin, begin+9*24*hour, 1)
		for _, k := range []int{0, 10, 49, 60, 149, 400, 540, 1000, 2000} {
			if k >= len(slots) {
				continue
			}
			at, depends := set.After(new(rules.State), 0, begin, int64(k))
			if d := at - slots[k]; !depends || d < -hour || d > hour {
				t.Errorf("%s: number %d is expected %v after it starts", windows, k, time.Duration(d)*time.Microsecond)
			}
		}
	}
}
