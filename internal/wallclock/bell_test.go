package wallclock

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestBellsByHand(t *testing.T) {
	for _, test := range []struct{ at, days, zone, from, want string }{
		{"08:00", "", "", "2026-12-01T07:59:59Z", "2026-12-01T08:00:00Z"},
		{"08:00", "", "", "2026-12-01T08:00:00Z", "2026-12-02T08:00:00Z"},
		{"08:00", "mon", "Asia/Tokyo", "2026-12-01T00:00:00Z", "2026-12-06T23:00:00Z"}, // a Tuesday
		{"08:00", "mon", "Asia/Tokyo", "2026-12-06T22:59:00Z", "2026-12-06T23:00:00Z"},
		{"17:30", "sat,sun", "Asia/Kathmandu", "2026-12-04T12:00:00Z", "2026-12-05T11:45:00Z"},
		{"02:30", "", "Europe/Paris", "2027-03-27T12:00:00Z", "2027-03-28T01:00:00Z"},    // there is none: it is 03:00 then
		{"02:30", "", "Europe/Paris", "2027-10-30T12:00:00Z", "2027-10-31T00:30:00Z"},    // the first of two
		{"02:30", "", "Europe/Paris", "2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"},    // and not the second
		{"12:00", "fri", "Pacific/Apia", "2011-12-29T00:00:00Z", "2011-12-30T10:00:00Z"}, // the 30th was left out
		{"00:00", "", "America/New_York", "2026-12-01T05:00:00Z", "2026-12-02T05:00:00Z"},
	} {
		b, err := ParseBell(test.at, test.days)
		zone, wrong := time.LoadLocation(test.zone)
		from, bad := time.Parse(time.RFC3339, test.from)
		if err != nil || wrong != nil || bad != nil {
			t.Fatal(err, wrong, bad)
		}
		if got := time.UnixMicro(b.Next(zone, from.UnixMicro())).UTC().Format(time.RFC3339); got != test.want {
			t.Errorf("%s %s in %s after %s: %s, want %s", test.at, test.days, test.zone, test.from, got, test.want)
		}
	}
	for _, wrong := range [][2]string{{"8", ""}, {"24:00", ""}, {"25:00", ""}, {"", ""}, {"08:00", "monday"}} {
		if _, err := ParseBell(wrong[0], wrong[1]); err == nil {
			t.Errorf("%q is a bell", wrong)
		}
	}
}

// Minute by minute, package time shows the local time of the bell for the first time of a day when it rings, or one behind it
// where that time does not exist.
func TestBellsAgreeWithTheClock(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 60 {
		zone, err := time.LoadLocation(Names()[r.IntN(len(Names()))])
		if err != nil {
			t.Fatal(err)
		}
		at := time.Duration(r.IntN(24*60)) * time.Minute
		b, err := ParseBell(time.Time{}.Add(at).Format("15:04"), "")
		if err != nil {
			t.Fatal(err)
		}
		now := time.Date(2020+r.IntN(18), time.Month(1+r.IntN(12)), 1+r.IntN(28), r.IntN(24), r.IntN(60), 0, 0, time.UTC)
		got := time.UnixMicro(b.Next(zone, now.UnixMicro()))
		rung := func(of time.Time) bool { // whether the local day of an instant had its bell by then, looking back
			local := of.In(zone)
			for back := of; back.In(zone).Day() == local.Day(); back = back.Add(-time.Minute) {
				l := back.In(zone)
				if time.Duration(l.Hour())*time.Hour+time.Duration(l.Minute())*time.Minute >= at {
					return true
				}
			}
			return false
		}
		want := now.Add(time.Minute)
		for ; !rung(want) || rung(want.Add(-time.Minute)) && want.In(zone).Day() == want.Add(-time.Minute).In(zone).Day(); want = want.Add(time.Minute) {
		}
		if !got.Equal(want) {
			t.Errorf("%v in %v after %v: %v, want %v", at, zone, now, got.UTC(), want.UTC())
		}
	}
}
