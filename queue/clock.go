package queue

import (
	"context"
	"fmt"

	"github.com/waterclock/waterclock/internal/wallclock"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A UserClock is what is known of the clock of a user, for rules that go by it ([throttle.UserHours]). What is empty is as the policy of the
// tenant says.
type UserClock struct {
	Zone  string `json:"zone,omitempty"`  // such as Europe/Paris
	Quiet string `json:"quiet,omitempty"` // hours in which nothing is wanted, such as 21:30-07:00
}

// validate returns an error that says what would be right, or nil.
func (c UserClock) validate() (wallclock.Person, error) {
	p, err := wallclock.NewPerson(c.Zone, c.Quiet)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrInvalidJob, err)
	}
	return p, err
}

// clocksOf returns the clocks that jobs tell of, the last one of each user.
func clocksOf(jobs []Job) (all []store.Person) {
	var places map[[2]string]int
	for _, j := range jobs {
		if j.Zone == "" && j.Quiet == "" {
			continue
		}
		person, err := UserClock{j.Zone, j.Quiet}.validate()
		if err != nil {
			continue // it was checked before
		}
		of := [2]string{j.Tenant, j.User}
		place, known := places[of]
		if !known {
			if places == nil {
				places = make(map[[2]string]int)
			}
			places[of] = len(all)
			all = append(all, store.Person{Tenant: j.Tenant, User: j.User, Person: person})
			continue
		}
		all[place].Person = person.Over(all[place].Person)
	}
	return all
}

// SetUser sets the clock of a tenant's user, in place of the former one, until it is set again or a job brings another one
// ([Job.Zone]). It governs the jobs that wait already, too. The error wraps [ErrInvalidJob] where there is no such zone, or the hours are
// malformed.
func (i *Inspector) SetUser(ctx context.Context, tenant, user string, clock UserClock) error {
	person, err := clock.validate()
	switch {
	case err != nil:
		return err
	case tenant == "" || user == "" || len(tenant) > maxName || len(user) > maxName:
		return fmt.Errorf("%w: tenant %q, user %q; want a name of 1 to %d bytes for both", ErrInvalidJob, tenant, user, maxName)
	}
	i, err = i.of(ctx, tenant)
	if err != nil {
		return err
	}
	if err := i.store.SetPeople(ctx, []store.Person{{Tenant: tenant, User: user, Person: person}}, false); err != nil {
		return i.failed("setting a clock in", err)
	}
	return nil
}

// User returns what is known of the clock of a tenant's user.
func (i *Inspector) User(ctx context.Context, tenant, user string) (UserClock, error) {
	i, err := i.of(ctx, tenant)
	if err != nil {
		return UserClock{}, err
	}
	person, err := i.store.PersonOf(ctx, tenant, user)
	if err != nil {
		return UserClock{}, i.failed("reading a clock of", err)
	}
	zone, quiet := person.Parts()
	return UserClock{zone, quiet}, nil
}
