package wallclock

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Hours are open on some days of the week from one local time to another, but for holidays. What begins on a day and goes on
// behind midnight belongs to the day on which it begins. A holiday is closed from midnight to midnight.
type Hours struct {
	spans    []span  // by when they begin
	longest  int64   // of them
	days     [7]bool // Monday first
	holidays map[holiday]bool
}

// A span is open from the time `from` of a day to `to`, which may lie on the next day.
type span struct{ from, to int64 }

// A holiday is a date; in the year 0 it is that of every year.
type holiday struct {
	year  int
	month time.Month
	day   int
}

const mostHolidays = 400

// ParseHours reads hours such as "08:00-12:00,13:00-18:00", days of the week such as "mon-fri" or "mon,wed" (all of them
// if it is empty), and holidays such as "12-25,2026-04-06". The error says what would be right.
func ParseHours(hours, days, holidays string) (Hours, error) {
	h := Hours{days: [7]bool{true, true, true, true, true, true, true}}
	for _, text := range split(hours) {
		s, err := parseSpan(text)
		if err != nil {
			return Hours{}, err
		}
		h.spans, h.longest = append(h.spans, s), max(h.longest, s.to-s.from)
	}
	if len(h.spans) == 0 {
		return Hours{}, fmt.Errorf("hours %q: %s", hours, wantHours)
	}
	slices.SortFunc(h.spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	if days != "" {
		var err error
		if h.days, err = parseDays(days); err != nil {
			return Hours{}, err
		}
	}
	for _, text := range split(holidays) {
		date, err := parseHoliday(text)
		if err != nil {
			return Hours{}, err
		}
		if h.holidays == nil {
			h.holidays = make(map[holiday]bool)
		}
		h.holidays[date] = true
	}
	if len(h.holidays) > mostHolidays {
		return Hours{}, fmt.Errorf("%d holidays; want %d at most", len(h.holidays), mostHolidays)
	}
	return h, nil
}

// split splits a list at its commas.
func split(list string) []string {
	parts := strings.Split(list, ",")
	for i, part := range parts {
		parts[i] = strings.TrimSpace(part)
	}
	return slices.DeleteFunc(parts, func(part string) bool { return part == "" })
}

const wantHours = "want hours such as 08:00-21:00, or 22:00-06:00 across midnight"

func parseSpan(text string) (s span, err error) {
	from, to, found := strings.Cut(text, "-")
	begin, err := parseTime(from)
	end, wrong := parseTime(to)
	if !found || err != nil || wrong != nil || begin == day {
		return s, fmt.Errorf("hours %q: %s", text, wantHours)
	}
	if begin == end {
		return s, fmt.Errorf("hours %q end when they begin; want 00:00-24:00 for the whole day", text)
	}
	if end < begin {
		end += day
	}
	return span{begin, end}, nil
}

// parseTime reads 08:00; 24:00 is the end of a day.
func parseTime(text string) (int64, error) {
	hour, minutes, _ := strings.Cut(strings.TrimSpace(text), ":")
	h, err := strconv.ParseUint(hour, 10, 8)
	m, wrong := strconv.ParseUint(minutes, 10, 8)
	if err != nil || wrong != nil || len(minutes) != 2 || len(hour) > 2 || m > 59 || 60*h+m > 24*60 {
		return 0, fmt.Errorf("time %q", text)
	}
	return int64(60*h+m) * minute, nil
}

var dayNames = []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}

func parseDays(text string) (days [7]bool, err error) {
	for _, part := range split(text) {
		from, to, _ := strings.Cut(part, "-")
		if to == "" {
			to = from
		}
		first, last := slices.Index(dayNames, from), slices.Index(dayNames, to)
		if first < 0 || last < 0 {
			return days, fmt.Errorf("days %q: want days such as mon-fri, or sat,sun, of mon, tue, wed, thu, fri, sat and sun", part)
		}
		for days[first] = true; first != last; {
			first = (first + 1) % 7
			days[first] = true
		}
	}
	if days == [7]bool{} {
		return days, fmt.Errorf("no days; want some such as mon-fri, or nothing for all")
	}
	return days, nil
}

// AreDays reports whether a text is days of the week.
func AreDays(text string) bool {
	_, err := parseDays(text)
	return err == nil
}

func parseHoliday(text string) (holiday, error) {
	if date, err := time.Parse("2006-01-02", text); err == nil {
		return holiday{date.Year(), date.Month(), date.Day()}, nil
	}
	if date, err := time.Parse("2006-01-02", "2000-"+text); err == nil { // a leap year
		return holiday{0, date.Month(), date.Day()}, nil
	}
	return holiday{}, fmt.Errorf("holiday %q: want a date such as 2026-12-25, or 12-25 for every year", text)
}

// Texts returns what [ParseHours] reads, always written alike.
func (h Hours) Texts() (hours, days, holidays string) {
	var spans, dates []string
	for _, s := range h.spans {
		spans = append(spans, clock(s.from)+"-"+clock((s.to-1)%day+1))
	}
	for date := range h.holidays {
		if text := fmt.Sprintf("%02d-%02d", int(date.month), date.day); date.year > 0 {
			dates = append(dates, fmt.Sprintf("%04d-%s", date.year, text))
		} else {
			dates = append(dates, text)
		}
	}
	slices.Sort(dates)
	return strings.Join(slices.Compact(spans), ","), h.dayText(), strings.Join(dates, ",")
}

func clock(of int64) string { return fmt.Sprintf("%02d:%02d", of/minute/60, of/minute%60) }

// dayText writes the days: runs of three and more, and of the two at the end of the week, from the first to the last.
func (h Hours) dayText() string {
	if h.days == [7]bool{true, true, true, true, true, true, true} {
		return ""
	}
	var parts []string
	for i := 0; i < 7; i++ {
		if !h.days[i] {
			continue
		}
		last := i
		for last < 6 && h.days[last+1] {
			last++
		}
		switch part := dayNames[i]; {
		case last == i:
			parts = append(parts, part)
		default:
			parts = append(parts, part+"-"+dayNames[last])
		}
		i = last
	}
	return strings.Join(parts, ",")
}

// search is how many days ahead hours are looked for. Hours that do not open within two years do not open.
const search = 2 * 366

// Opens returns the first instant from t on at which the hours are open; the last instant of all if there is none.
func (h *Hours) Opens(zone *time.Location, t int64) int64 {
	for t < never {
		offset, end := run(zone, t)
		local := h.open(t + offset)
		if at := local - offset; at < end || local == never {
			return min(at, never)
		}
		t = end
	}
	return never
}

// Closes returns the first instant from t on at which the hours are closed; the last instant of all if there is none.
func (h *Hours) Closes(zone *time.Location, t int64) int64 {
	for limit := t + search*day; t < min(limit, never); {
		offset, end := run(zone, t)
		if at := h.closed(t+offset) - offset; at < end {
			return at
		}
		t = end
	}
	return never
}

// open returns the first local time from one on that is open; never if there is none within two years.
func (h *Hours) open(local int64) int64 {
	best := never
	for d, last := dayOf(local)-1, dayOf(local)+search; d <= last && d*day < best; d++ {
		if !h.days[weekday(d)] {
			continue
		}
		for _, s := range h.near(local - d*day) {
			at := max(local, d*day+s.from)
			if at >= best {
				break
			}
			for h.isHoliday(dayOf(at)) {
				at = (dayOf(at) + 1) * day
			}
			if at < d*day+s.to {
				best = min(best, at)
			}
		}
	}
	return best
}

// closed returns the first local time from one on that is closed; never if there is none within two years.
func (h *Hours) closed(local int64) int64 {
	for last := dayOf(local) + search; dayOf(local) <= last; {
		until := h.until(local)
		if until == local {
			return local
		}
		local = until
	}
	return never
}

// until returns until when a span goes on that is open at a local time, within its day; that time if none is.
func (h *Hours) until(local int64) int64 {
	today, until := dayOf(local), local
	if h.isHoliday(today) {
		return local
	}
	for d := today - 1; d <= today; d++ {
		if !h.days[weekday(d)] {
			continue
		}
		for _, s := range h.near(local - d*day) {
			if d*day+s.from > local {
				break
			}
			until = max(until, min(d*day+s.to, (today+1)*day))
		}
	}
	return until
}

// near returns the spans that may go on at a time of their day, and those after it.
func (h *Hours) near(at int64) []span {
	if len(h.spans) < 8 {
		return h.spans
	}
	first, _ := slices.BinarySearchFunc(h.spans, at-h.longest, func(s span, at int64) int { return cmp.Compare(s.from, at) })
	return h.spans[first:]
}

func (h *Hours) isHoliday(of int64) bool {
	if len(h.holidays) == 0 {
		return false
	}
	year, month, date := time.Unix(of*day/second, 0).UTC().Date()
	return h.holidays[holiday{year, month, date}] || h.holidays[holiday{0, month, date}]
}
