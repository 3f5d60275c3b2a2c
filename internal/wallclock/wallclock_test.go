package wallclock

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/sample"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	zone, err := Zone(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func hours(t testing.TB, text, days, holidays string) *Hours {
	t.Helper()
	h, err := ParseHours(text, days, holidays)
	if err != nil {
		t.Fatal(err)
	}
	return &h
}

// at reads an instant, in UTC or with an offset.
func at(t testing.TB, text string) int64 {
	t.Helper()
	instant, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return instant.UnixMicro()
}

func utc(t int64) string { return time.UnixMicro(t).UTC().Format(time.RFC3339Nano) }

// What hours do at both changes of daylight saving time, at odd offsets, and on days that do not exist, by hand.
func TestHoursByHand(t *testing.T) {
	for _, test := range []struct{ zone, hours, days, holidays, from, opens, closes string }{
		// Paris, 29 March 2026: the clock goes from 02:00 +01 to 03:00 +02.
		{"Europe/Paris", "08:00-21:00", "", "", "2026-03-28T22:00:00+01:00", "2026-03-29T08:00:00+02:00", "2026-03-29T21:00:00+02:00"},
		{"Europe/Paris", "02:30-04:00", "", "", "2026-03-29T00:00:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"},
		{"Europe/Paris", "02:15-02:45", "", "", "2026-03-29T00:00:00+01:00", "2026-03-30T02:15:00+02:00", "2026-03-30T02:45:00+02:00"},
		{"Europe/Paris", "01:00-02:30", "", "", "2026-03-29T00:00:00+01:00", "2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00"},
		// Paris, 25 October 2026: the clock goes from 03:00 +02 to 02:00 +01.
		{"Europe/Paris", "02:00-02:30", "", "", "2026-10-25T00:00:00+02:00", "2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00"},
		{"Europe/Paris", "02:00-02:30", "", "", "2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00"},
		{"Europe/Paris", "21:00-08:00", "", "", "2026-10-24T12:00:00+02:00", "2026-10-24T21:00:00+02:00", "2026-10-25T08:00:00+01:00"},
		// New York, 8 March and 1 November 2026.
		{"America/New_York", "08:00-21:00", "", "", "2026-03-07T21:00:00-05:00", "2026-03-08T08:00:00-04:00", "2026-03-08T21:00:00-04:00"},
		{"America/New_York", "08:00-21:00", "", "", "2026-10-31T21:00:00-04:00", "2026-11-01T08:00:00-05:00", "2026-11-01T21:00:00-05:00"},
		{"America/New_York", "01:30-01:45", "", "", "2026-11-01T01:45:00-04:00", "2026-11-01T01:30:00-05:00", "2026-11-01T01:45:00-05:00"},
		// Lord Howe: half an hour, on 4 October 2026 from 02:00 +10:30 to 02:30 +11, on 5 April from 02:00 +11 to 01:30 +10:30.
		{"Australia/Lord_Howe", "02:15-03:00", "", "", "2026-10-04T00:00:00+10:30", "2026-10-04T02:30:00+11:00", "2026-10-04T03:00:00+11:00"},
		{"Australia/Lord_Howe", "01:45-02:00", "", "", "2026-04-05T01:50:00+11:00", "2026-04-05T01:50:00+11:00", "2026-04-05T02:00:00+11:00"},
		{"Australia/Lord_Howe", "01:45-01:50", "", "", "2026-04-05T01:50:00+11:00", "2026-04-05T01:45:00+10:30", "2026-04-05T01:50:00+10:30"},
		// Kathmandu is 5:45 ahead.
		{"Asia/Kathmandu", "08:00-21:00", "", "", "2026-01-01T00:00:00Z", "2026-01-01T02:15:00Z", "2026-01-01T15:15:00Z"},
		// Samoa has no 30 December 2011, a Friday: Thursday 24:00 -10 is Saturday 00:00 +14.
		{"Pacific/Apia", "08:00-21:00", "", "", "2011-12-29T21:00:00-10:00", "2011-12-31T08:00:00+14:00", "2011-12-31T21:00:00+14:00"},
		{"Pacific/Apia", "08:00-21:00", "fri", "", "2011-12-29T12:00:00-10:00", "2012-01-06T08:00:00+14:00", "2012-01-06T21:00:00+14:00"},
		{"Pacific/Apia", "22:00-06:00", "thu", "", "2011-12-29T12:00:00-10:00", "2011-12-29T22:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		// Leap days.
		{"UTC", "00:00-24:00", "", "02-28,03-01", "2028-02-28T12:00:00Z", "2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z"},
		{"UTC", "00:00-24:00", "", "02-29", "2028-02-28T12:00:00Z", "2028-02-28T12:00:00Z", "2028-02-29T00:00:00Z"},
		{"UTC", "00:00-00:01,00:02-00:03,00:04-00:05,00:06-00:07,00:08-00:09,00:10-00:11,00:12-00:13,00:14-00:15,23:58-00:01", "", "", "2026-11-26T00:13:30Z", "2026-11-26T00:14:00Z", "2026-11-26T00:15:00Z"},
		{"UTC", "00:00-00:01,00:02-00:03,00:04-00:05,00:06-00:07,00:08-00:09,00:10-00:11,00:12-00:13,00:14-00:15,23:58-00:02", "", "", "2026-11-26T00:15:00Z", "2026-11-26T23:58:00Z", "2026-11-27T00:03:00Z"},
		{"UTC", "09:00-10:00", "sun", "", "2028-02-27T10:00:00Z", "2028-03-05T09:00:00Z", "2028-03-05T10:00:00Z"},
		// Days of the week, spans, holidays.
		{"Europe/Paris", "08:00-21:00", "mon-fri", "", "2026-11-27T21:00:00+01:00", "2026-11-30T08:00:00+01:00", "2026-11-30T21:00:00+01:00"},
		{"Europe/Paris", "13:00-18:00,08:00-12:00", "", "", "2026-11-27T12:00:00+01:00", "2026-11-27T13:00:00+01:00", "2026-11-27T18:00:00+01:00"},
		{"Europe/Paris", "08:00-12:00,12:00-18:00", "", "", "2026-11-27T09:00:00+01:00", "2026-11-27T09:00:00+01:00", "2026-11-27T18:00:00+01:00"},
		{"Europe/Paris", "22:00-06:00", "fri", "", "2026-11-28T03:00:00+01:00", "2026-11-28T03:00:00+01:00", "2026-11-28T06:00:00+01:00"},
		{"Europe/Paris", "22:00-06:00", "sat-mon", "", "2026-11-28T03:00:00+01:00", "2026-11-28T22:00:00+01:00", "2026-11-29T06:00:00+01:00"},
		{"Europe/Paris", "22:00-06:00", "", "2026-12-25", "2026-12-24T23:00:00+01:00", "2026-12-24T23:00:00+01:00", "2026-12-25T00:00:00+01:00"},
		{"Europe/Paris", "22:00-06:00", "", "12-25", "2026-12-25T00:00:00+01:00", "2026-12-26T00:00:00+01:00", "2026-12-26T06:00:00+01:00"},
		{"Europe/Paris", "08:00-21:00", "mon-fri", "2026-12-24,2026-12-25,01-01", "2026-12-23T21:00:00+01:00", "2026-12-28T08:00:00+01:00", "2026-12-28T21:00:00+01:00"},
	} {
		h, in := hours(t, test.hours, test.days, test.holidays), zone(t, test.zone)
		opens := h.Opens(in, at(t, test.from))
		if closes := h.Closes(in, opens); opens != at(t, test.opens) || closes != at(t, test.closes) {
			t.Errorf("%s %s %s: from %s on they open at %s, want %s, and close at %s, want %s", test.zone, test.hours, test.days,
				test.from, utc(opens), test.opens, utc(closes), test.closes)
		}
	}
}

// When days, weeks and months begin, by hand.
func TestUnitsByHand(t *testing.T) {
	for _, test := range []struct {
		zone         string
		unit         Unit
		t, from, end string
	}{
		{"Europe/Paris", Day, "2026-03-29T12:00:00+02:00", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"}, // 23 hours
		{"Europe/Paris", Day, "2026-10-25T12:00:00+01:00", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00"}, // 25 hours
		{"Europe/Paris", Week, "2026-03-29T12:00:00+02:00", "2026-03-23T00:00:00+01:00", "2026-03-30T00:00:00+02:00"},
		{"Europe/Paris", Month, "2026-03-29T12:00:00+02:00", "2026-03-01T00:00:00+01:00", "2026-04-01T00:00:00+02:00"},
		{"UTC", Month, "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{"UTC", Month, "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"UTC", Week, "2026-11-26T12:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"},
		{"UTC", Week, "1970-01-01T00:00:00Z", "1969-12-29T00:00:00Z", "1970-01-05T00:00:00Z"},
		{"Asia/Kathmandu", Day, "2026-11-26T18:15:00Z", "2026-11-26T18:15:00Z", "2026-11-27T18:15:00Z"},
		{"Asia/Kathmandu", Day, "2026-11-26T18:14:59Z", "2026-11-25T18:15:00Z", "2026-11-26T18:15:00Z"},
		{"Australia/Lord_Howe", Day, "2026-10-04T12:00:00+11:00", "2026-10-04T00:00:00+10:30", "2026-10-05T00:00:00+11:00"},
		{"Pacific/Apia", Day, "2011-12-29T12:00:00-10:00", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"Pacific/Apia", Day, "2011-12-31T00:00:00+14:00", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00"},
		// The clock goes back from 00:01 on Sunday to 23:01 on Saturday: Sunday has begun by then.
		{"America/St_Johns", Day, "2010-11-07T00:00:30-02:30", "2010-11-07T00:00:00-02:30", "2010-11-08T00:00:00-03:30"},
		{"America/St_Johns", Day, "2010-11-06T23:30:00-03:30", "2010-11-07T00:00:00-02:30", "2010-11-08T00:00:00-03:30"},
		{"America/St_Johns", Day, "2010-11-06T23:30:00-02:30", "2010-11-06T00:00:00-02:30", "2010-11-07T00:00:00-02:30"},
		// In Beirut midnight does not exist on 29 March 2026.
		{"Asia/Beirut", Day, "2026-03-29T12:00:00+03:00", "2026-03-29T01:00:00+03:00", "2026-03-30T00:00:00+03:00"},
	} {
		begin, end := test.unit.Around(zone(t, test.zone), at(t, test.t))
		if begin != at(t, test.from) || end != at(t, test.end) {
			t.Errorf("%s %s around %s: %s to %s, want %s to %s", test.zone, test.unit, test.t, utc(begin), utc(end), test.from, test.end)
		}
	}
}

// Hours that never open, and those that never close.
func TestHoursWithoutEnd(t *testing.T) {
	now, paris := at(t, "2026-11-26T12:00:00Z"), zone(t, "Europe/Paris")
	if always := hours(t, "00:00-24:00", "", ""); always.Opens(paris, now) != now || always.Closes(paris, now) != never {
		t.Error("hours of the whole day open or close")
	}
	if twice := hours(t, "12:00-00:00,00:00-12:00", "mon-sun", ""); twice.Opens(paris, now) != now || twice.Closes(paris, now) != never {
		t.Error("hours of the whole day open or close")
	}
	if closed := hours(t, "08:00-09:00", "mon", "2011-01-03"); closed.Opens(paris, never) != never || closed.Closes(paris, never) != never {
		t.Error("there is something behind the last instant")
	}
}

// What is wrong in hours, days, holidays and names of zones is said, with what would be right.
func TestWhatIsWrong(t *testing.T) {
	for _, test := range []struct{ hours, days, holidays, want string }{
		{"", "", "", `hours "": want hours such as 08:00-21:00`},
		{"8-21", "", "", `hours "8-21": want hours`},
		{"08:00", "", "", `hours "08:00": want hours`},
		{"08:60-09:00", "", "", `hours "08:60-09:00": want`},
		{"24:00-09:00", "", "", `want hours`},
		{"08:00-24:01", "", "", `want hours`},
		{"08:00-08:00", "", "", `end when they begin; want 00:00-24:00`},
		{"08:00-21:00", "monday", "", `days "monday": want days such as mon-fri`},
		{"08:00-21:00", ",", "", `no days; want some`},
		{"08:00-21:00", "", "25.12.", `holiday "25.12.": want a date such as 2026-12-25, or 12-25 for every year`},
		{"08:00-21:00", "", "2026-02-29", `holiday "2026-02-29"`},
	} {
		if _, err := ParseHours(test.hours, test.days, test.holidays); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q %q %q: %v, want %s", test.hours, test.days, test.holidays, err, test.want)
		}
	}
	for name, want := range map[string]string{
		"Europe/Pari": "Europe/Paris", "europe/paris": "Europe/Paris", "Paris": "Europe/Paris", "new york": "America/New_York",
		"Asia/Katmandoo": "Asia/Katmandu", "America/Londn": "Europe/London", "utc ": "UTC",
	} {
		if _, err := Zone(name); err == nil || !strings.HasSuffix(err.Error(), "did you mean "+want+"?") {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
	for _, name := range []string{"", "Local", "../etc/passwd"} {
		if _, err := Zone(name); err == nil {
			t.Errorf("%q is a zone", name)
		}
	}
}

// Hours are written alike, whatever way they were written.
func TestTexts(t *testing.T) {
	for _, test := range [][6]string{
		{"8:00-21:00", "mon,tue,wed,thu,fri", "2026-04-06, 12-25", "08:00-21:00", "mon-fri", "12-25,2026-04-06"},
		{"13:00-24:00, 08:00-12:00", "sun,sat", "", "08:00-12:00,13:00-24:00", "sat-sun", ""},
		{"22:00-6:00", "fri-mon", "", "22:00-06:00", "mon,fri-sun", ""},
		{"22:00-00:00", "mon-sun", "", "22:00-24:00", "", ""},
	} {
		for range 2 {
			text, days, holidays := hours(t, test[0], test[1], test[2]).Texts()
			if [3]string{text, days, holidays} != [3]string{test[3], test[4], test[5]} {
				t.Errorf("%q became %q %q %q", test, text, days, holidays)
			}
			test[0], test[1], test[2] = text, days, holidays
		}
	}
}

// Each name is a zone of Go's database.
func TestNames(t *testing.T) {
	for _, name := range Names() {
		if _, err := Zone(name); err != nil {
			t.Error(err)
		}
	}
}

// The clock minute by minute, as Go shows it: what hours and units are by their definitions. It shares nothing with what it judges.
type minutes struct {
	zone *time.Location
}

func (m minutes) open(h *Hours, t int64) bool {
	local := time.UnixMicro(t).In(m.zone)
	year, month, date := local.Date()
	if h.holidays[holiday{year, month, date}] || h.holidays[holiday{0, month, date}] {
		return false
	}
	clock := int64(local.Hour())*60 + int64(local.Minute())
	today := (int(local.Weekday()) + 6) % 7
	for _, s := range h.spans {
		from, to := s.from/minute, s.to/minute
		if h.days[today] && from <= clock && clock < to || h.days[(today+6)%7] && clock < to-24*60 {
			return true
		}
	}
	return false
}

// unit names the day, the week or the month that the clock shows.
func (m minutes) unit(u Unit, t int64) string {
	local := time.UnixMicro(t).In(m.zone)
	switch u {
	case Day:
		return local.Format("2006-01-02")
	case Week:
		back := (int(local.Weekday()) + 6) % 7
		year, month, date := local.Date()
		return time.Date(year, month, date-back, 0, 0, 0, 0, time.UTC).Format("2006-01-02")
	}
	return local.Format("2006-01")
}

// The runs of a zone follow each other, beyond the end of the tables of zones, too, and have the offsets that Go says.
func TestRunsOfZones(t *testing.T) {
	for _, name := range sample.Draw(t, Names(), 40, 200) {
		in := zone(t, name)
		for now, end := at(t, "1999-01-01T00:00:00Z"), at(t, "2065-01-01T00:00:00Z"); now < end; {
			offset, until := run(in, now)
			if until <= now {
				t.Fatalf("%s: a run ends at %s, where it is asked for", name, utc(now))
			}
			for _, at := range []int64{now, now + (until-now)/3, until - 1} {
				if _, east := time.UnixMicro(at).In(in).Zone(); int64(east)*second != offset {
					t.Fatalf("%s: an offset of %d s at %s, want %d", name, offset/second, utc(at), east)
				}
			}
			now = until
		}
	}
}

func randomHours(rnd *rand.Rand) *Hours {
	h := &Hours{}
	for range 1 + rnd.IntN(3) {
		from := rnd.Int64N(24*60) * minute
		h.spans = append(h.spans, span{from, from + (1+rnd.Int64N(24*60-1))*minute})
	}
	slices.SortFunc(h.spans, func(a, b span) int { return int(a.from - b.from) })
	for i := range h.days {
		h.days[i] = rnd.IntN(3) > 0
	}
	h.days[rnd.IntN(7)] = true
	if rnd.IntN(2) == 0 {
		h.holidays = map[holiday]bool{}
		for range 1 + rnd.IntN(20) {
			h.holidays[holiday{rnd.IntN(2) * (2020 + rnd.IntN(18)), time.Month(1 + rnd.IntN(12)), 1 + rnd.IntN(28)}] = true
		}
	}
	return h
}

// judge walks from an instant, minute by minute, until the hours have opened and closed and the day is over.
func judge(t *testing.T, rnd *rand.Rand, name string, in *time.Location, from int64) {
	t.Helper()
	m, h := minutes{in}, randomHours(rnd)
	from -= from % minute // offsets since 1972 are of whole minutes
	opens := h.Opens(in, from)
	walk := from
	for ; !m.open(h, walk) && walk < from+40*day; walk += minute {
	}
	if opens != walk && walk < from+40*day {
		t.Fatalf("%s %v: from %s on open at %s, want %s", name, *h, utc(from), utc(opens), utc(walk))
	}
	closes := h.Closes(in, opens)
	for walk = opens; m.open(h, walk) && walk < opens+10*day; walk += minute {
	}
	if closes != walk && walk < opens+10*day {
		t.Fatalf("%s %v: open from %s to %s, want %s", name, *h, utc(opens), utc(closes), utc(walk))
	}
	if within := opens + rnd.Int64N(minute); h.Opens(in, within) != within || h.Closes(in, within) != closes {
		t.Fatalf("%s %v: within a minute of %s it is otherwise", name, *h, utc(opens))
	}
	unit := []Unit{Day, Week, Month}[rnd.IntN(3)]
	begin, end := unit.Around(in, from)
	shown := m.unit(unit, from)
	for walk = from; walk < end; walk += minute {
		if m.unit(unit, walk) > shown {
			t.Fatalf("%s: the %s %s around %s ends at %s, not at %s", name, unit, shown, utc(from), utc(walk), utc(end))
		}
	}
	if m.unit(unit, end) <= shown {
		t.Fatalf("%s: the %s %s goes on at %s", name, unit, shown, utc(end))
	}
	if m.unit(unit, begin) < shown || m.unit(unit, begin-minute) >= shown {
		t.Fatalf("%s: the %s %s around %s does not begin at %s", name, unit, shown, utc(from), utc(begin))
	}
	if b, e := unit.Around(in, end-1); b != begin || e != end {
		t.Fatalf("%s: the last microsecond of a %s is of another", name, unit)
	}
	if b, _ := unit.Around(in, end); b != end {
		t.Fatalf("%s: a %s ends at %s, and the next one begins at %s", name, unit, utc(end), utc(b))
	}
}

// At 10,000 random instants over a hundred zones all is as Go's clock shows it.
func TestAgreesWithTheClock(t *testing.T) {
	t.Parallel()
	rnd := sample.Rand(t, sample.SeedOf(t))
	names := Names()
	rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	begin, end := at(t, "2020-01-01T00:00:00Z"), at(t, "2038-01-01T00:00:00Z")
	for i := range sample.Size(50, 300, 10_000) {
		name := names[i%100]
		judge(t, rnd, name, zone(t, name), begin+rnd.Int64N(end-begin))
	}
}

// Around every change of every zone's clock from 2020 to 2037 all is as Go's clock shows it.
func TestAgreesAtEveryEdge(t *testing.T) {
	t.Parallel()
	type edge struct {
		name string
		at   int64
	}
	var edges []edge
	for _, name := range Names() {
		in := zone(t, name)
		for now, end := at(t, "2020-01-01T00:00:00Z"), at(t, "2038-01-01T00:00:00Z"); ; {
			if _, now = run(in, now); now >= end {
				break
			}
			edges = append(edges, edge{name, now})
		}
	}
	if len(edges) < 5_000 {
		t.Errorf("%d edges", len(edges))
	}
	rnd := sample.Rand(t, sample.SeedOf(t))
	for _, e := range sample.Draw(t, edges, 50, 200) {
		judge(t, rnd, e.name, zone(t, e.name), e.at-rnd.Int64N(day))
	}
}

// The fingerprint of the data of zones changes with one zone's offsets, and with nothing else.
func TestFingerprint(t *testing.T) {
	moved := func(name string) (*time.Location, error) {
		if name == "Europe/Paris" {
			name = "Europe/London"
		}
		return time.LoadLocation(name)
	}
	if fingerprintOf(time.LoadLocation) != Fingerprint() || fingerprintOf(moved) == Fingerprint() {
		t.Errorf("%s, and with Paris moved %s", Fingerprint(), fingerprintOf(moved))
	}
}
