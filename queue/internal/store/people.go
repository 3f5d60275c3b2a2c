package store

import (
	"context"
	"errors"

	"github.com/waterclock/waterclock/internal/wallclock"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// What is known of the clock of a user stands beside what rules remember, and stays until something else is said. Who sets it tells the
// leader, and lowers the bounds of the user's lanes: what waited by another clock is looked at again. A commit that was decided before the
// leader is told goes by the clock of before.

// A Person is what is known of the clock of a tenant's user.
type Person struct {
	Tenant, User string
	wallclock.Person
}

// peopleAtOnce is how many clocks are set in one change.
const peopleAtOnce = 200

// SetPeople notes what is known of clocks of users. With merge, what one of them does not say stays as it was. It takes one
// round trip to read, and one more to write if something changes.
func (s *Store) SetPeople(ctx context.Context, all []Person, merge bool) error {
	for ; len(all) > peopleAtOnce; all = all[peopleAtOnce:] {
		if err := s.setPeople(ctx, all[:peopleAtOnce], merge); err != nil {
			return err
		}
	}
	return s.setPeople(ctx, all, merge)
}

// changesTogether is how often a change is tried again because others set the same.
const changesTogether = 10

func (s *Store) setPeople(ctx context.Context, all []Person, merge bool) error {
	scopes := make([]string, len(all))
	for i, p := range all {
		scopes[i] = envelope.PersonScope(p.Tenant, p.User)
	}
	for range changesTogether {
		view, err := s.Look(ctx, scopes)
		if err != nil {
			return err
		}
		c := s.newChange()
		for i, p := range all {
			s.setPerson(c, p, view.States[scopes[i]], view.Now, merge)
		}
		if len(c.steps) == 0 {
			return nil
		}
		done, err := c.apply(ctx)
		if err != nil || len(done) == len(c.steps) {
			return err
		}
	}
	return errors.New("the clocks of these users change too often")
}

// setPerson adds the step that sets a clock, if it is another one.
func (s *Store) setPerson(c *change, p Person, was string, now int64, merge bool) {
	is := p.Person
	if merge {
		is = is.Over(wallclock.ReadPerson(was))
	}
	zone, quiet := is.Parts()
	if is.String() == was || was == "" && zone == "" && quiet == "" {
		return
	}
	key := s.key.State(envelope.PersonScope(p.Tenant, p.User))
	c.when(was, "GET", []string{key})
	if zone == "" && quiet == "" {
		c.do("DEL", key)
	} else {
		c.do("SET", key, is.String())
	}
	for priority := range suffixes {
		c.do("ZADD", s.key.Due(p.Tenant, priority), "XX", "LT", now, Escape(p.User))
	}
	c.do("ZADD", s.key.Tenants(), "XX", "LT", now, Escape(p.Tenant))
	c.tell(NoticeClock, Escape(p.Tenant)+":"+Escape(p.User))
}

// PersonOf returns what is known of the clock of a user.
func (s *Store) PersonOf(ctx context.Context, tenant, user string) (Person, error) {
	scope := envelope.PersonScope(tenant, user)
	view, err := s.Look(ctx, []string{scope})
	return Person{tenant, user, wallclock.ReadPerson(view.States[scope])}, err
}
