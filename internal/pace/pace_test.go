package pace

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/throttle"
)

// A backlog takes as long as the slowest of its rules; under a warm-up each day takes what its window allows.
func TestDrains(t *testing.T) {
	const day = 24 * time.Hour
	begin := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	warm := throttle.Warmup("2026-12-01", "1:50/24h,2:100/24h,7:1000/24h", "")
	slow := throttle.Leak(1, time.Hour)
	for _, test := range []struct {
		rules   []throttle.Rule
		waiting int64
		from    time.Time
		want    time.Duration
		by      string
	}{
		{[]throttle.Rule{warm}, 25, begin, day / 2, warm.String()},
		{[]throttle.Rule{warm}, 3000, begin, 6*day + 2450*day/1000, warm.String()},
		{[]throttle.Rule{warm}, 50, begin.Add(day / 2), day/2 + day/4, warm.String()},
		{[]throttle.Rule{warm}, 100, begin.AddDate(0, 0, -2), 2 * day, warm.String()},
		{[]throttle.Rule{warm}, 3000, begin.AddDate(1, 0, 0), 3 * day, warm.String()},
		{[]throttle.Rule{warm, slow}, 3000, begin, 125 * day, slow.String()},
		{[]throttle.Rule{warm, slow}, 20, begin, 20 * time.Hour, slow.String()},
		{[]throttle.Rule{warm.AsShadow(), slow.OrDrop(), throttle.Hours("08:00-09:00", "", "UTC")}, 20, begin, 0, ""},
		{[]throttle.Rule{warm}, 0, begin, 0, ""},
	} {
		got, by := Drains(test.waiting, test.rules, test.from)
		name := ""
		if by != nil {
			name = by.String()
		}
		if d := got - test.want; d < -time.Second || d > time.Second || name != test.by {
			t.Errorf("%d jobs from %v on take %v by %q, want %v by %q", test.waiting, test.from, got, name, test.want, test.by)
		}
	}
	if rate := Sustained([]throttle.Rule{slow, warm}, begin.AddDate(0, 0, -1)); rate != 1.0/3600 {
		t.Errorf("%v a second before the first day", rate)
	}
	if rate := Sustained([]throttle.Rule{warm}, begin.AddDate(0, 0, 1)); rate != 100.0/86400 {
		t.Errorf("%v a second on the second day", rate)
	}
}
