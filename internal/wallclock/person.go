package wallclock

import (
	"strings"
	"time"
)

// A Person is what is known of somebody's clock: the zone, and the quiet hours, in which nothing is wanted. The zero value lives by
// UTC, and has none.
type Person struct {
	zone  *time.Location
	quiet *Hours // when they are open it is quiet
	text  string
}

// NewPerson returns a person of a zone with quiet hours such as "21:30-07:00"; both may be empty. The error says what would be
// right.
func NewPerson(zone, quiet string) (Person, error) {
	var p Person
	var err error
	if zone != "" {
		if p.zone, err = Zone(zone); err != nil {
			return Person{}, err
		}
	}
	if quiet != "" {
		hours, err := ParseHours(quiet, "", "")
		if err != nil {
			return Person{}, err
		}
		p.quiet = &hours
		quiet, _, _ = hours.Texts()
	}
	p.text = zone + " " + quiet
	return p, nil
}

// ReadPerson reads what [Person.String] wrote. What cannot be read is the zero value.
func ReadPerson(text string) Person {
	zone, quiet, _ := strings.Cut(text, " ")
	p, _ := NewPerson(zone, quiet)
	return p
}

// String writes a person for [ReadPerson]: the zone, a space, and the quiet hours.
func (p Person) String() string { return p.text }

// Parts returns the zone and the quiet hours, "" where they are not known.
func (p Person) Parts() (zone, quiet string) {
	zone, quiet, _ = strings.Cut(p.text, " ")
	return zone, quiet
}

// Over returns the person, with what is not known of it taken from another one.
func (p Person) Over(other Person) Person {
	zone, quiet := p.Parts()
	if zone == "" {
		zone, _ = other.Parts()
		p.zone = other.zone
	}
	if quiet == "" {
		_, quiet = other.Parts()
		p.quiet = other.quiet
	}
	p.text = zone + " " + quiet
	return p
}

// Zone returns the person's zone. It works on nil.
func (p *Person) Zone() *time.Location {
	if p == nil || p.zone == nil {
		return time.UTC
	}
	return p.zone
}

// Opens returns the first instant from t on at which hours are open on the person's clock, and it is not quiet. It works on nil.
func (p *Person) Opens(h *Hours, t int64) int64 {
	zone := p.Zone()
	for range passes {
		if t = h.Opens(zone, t); p == nil || p.quiet == nil || t == never {
			return t
		}
		loud := p.quiet.Closes(zone, t)
		if loud == t {
			return t
		}
		t = loud
	}
	return never
}

// passes bounds how often hours and quiet hours are asked in turns.
const passes = 2000

// Closes returns the first instant from t on at which hours are closed on the person's clock, or it is quiet. It works on nil.
func (p *Person) Closes(h *Hours, t int64) int64 {
	zone := p.Zone()
	closes := h.Closes(zone, t)
	if p != nil && p.quiet != nil {
		closes = min(closes, p.quiet.Opens(zone, t))
	}
	return closes
}
