package queue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/internal/policyfile"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/throttle"
)

// An Override replaces rules, concurrency or capacity of exactly one that a limit counts for, for a time: of one tenant, of
// one user, or of one value of a limit by name. It holds at once, also for jobs that wait, and ends by itself, on Redis's
// clock. There are 200 at most at one time.
type Override struct {
	// Limit is the limit: "queue", "tenant", "user", or the name of a limit in the policies.
	Limit string `json:"limit"`
	// Key are the values of its key: nothing for the queue, the name of a tenant, or a tenant and a user.
	Key []string `json:"key,omitempty"`

	// Rules, Concurrency and Capacity replace what the policies say, each where it is not zero. One of them has to be. The
	// queue has no capacity.
	Rules       []throttle.Rule `json:"rules,omitempty"`
	Concurrency Concurrency     `json:"concurrency,omitzero"`
	Capacity    int             `json:"capacity,omitempty"`

	// Until is the end, on Redis's clock. For is the duration from the call; it counts where Until is the zero time.
	// It is at least a second.
	Until time.Time     `json:"until"`
	For   time.Duration `json:"-"`

	Since time.Time `json:"since"` // when it was set; [Inspector.Override] does not read it
	Note            // who set it, and why
}

// String says what is overridden, and by what: "domain gmail.com: leak 5/s, concurrency 20".
func (o Override) String() string {
	var says []string
	for _, rule := range o.Rules {
		text, _ := rule.MarshalText() // with its options; of a rule that is wrong nothing
		says = append(says, string(text))
	}
	if o.Concurrency != (Concurrency{}) {
		says = append(says, "concurrency "+o.Concurrency.String())
	}
	if o.Capacity > 0 {
		says = append(says, fmt.Sprint("capacity ", o.Capacity))
	}
	return strings.TrimSpace(o.Limit+" "+limits.JoinKey(o.Key)) + ": " + strings.Join(says, ", ")
}

// Override sets an override, in the place of any other of the same limit and key. Policies that are set later leave it as it is.
// A note of its own counts before that of [Inspector.As]. The error wraps [ErrInvalidArgument] if there is no such limit, if
// its key has other fields, or if the override has no end; it wraps [ErrInvalidPolicies] if rules are wrong or limit nothing.
func (i *Inspector) Override(ctx context.Context, o Override) error {
	o.Note = cmp.Or(o.Note, i.note)
	_, err := i.override(ctx, o.Note, func(f *policyfile.File, now int64) error {
		if err := knows(f, o.Limit, o.Key); err != nil {
			return err
		}
		until := envelope.Micros(o.Until)
		if o.Until.IsZero() {
			until = now + min(o.For, longestPause).Microseconds()
		}
		if until < now+shortestPause.Microseconds() {
			return fmt.Errorf("%w: an override that does not last; want Until, or For of at least %v", ErrInvalidArgument, shortestPause)
		}
		f.Overrides = append(without(f.Overrides, o), policyfile.Override{
			Limit: o.Limit, Fields: f.Limits[o.Limit].Key, Values: o.Key, Bounds: policyfile.Bounds{Limits: limitsOf(o.Rules, o.Concurrency), Capacity: o.Capacity},
			Since: now, Until: until, Author: o.Author, Reason: o.Reason,
		})
		return nil
	})
	return err
}

// EndOverride ends the override of a limit and key before its time, and reports whether there was one.
func (i *Inspector) EndOverride(ctx context.Context, limit string, key ...string) (bool, error) {
	return i.override(ctx, i.note, func(f *policyfile.File, _ int64) error {
		f.Overrides = without(f.Overrides, Override{Limit: limit, Key: key})
		return nil
	})
}

// Overrides returns the overrides in force, those that end first before the others. Those of a limit that is gone from the
// policies, or has another key by now, are not in force.
func (i *Inspector) Overrides(ctx context.Context) ([]Override, error) {
	clock, err := i.store.Clock(ctx)
	if err != nil {
		return nil, i.failed("reading the overrides of", err)
	}
	source, version, err := i.store.Policies(ctx)
	if err != nil || version == 0 {
		return nil, i.wrapped("reading the overrides of", err)
	}
	f, err := policyfile.ParseKept("policies of queue "+i.store.Queue, []byte(source))
	return overridesOf(f, clock.Now), err
}

// override changes the overrides in force, and reports whether that makes a difference. Those that have ended go.
func (i *Inspector) override(ctx context.Context, note Note, change func(f *policyfile.File, now int64) error) (changed bool, err error) {
	for {
		clock, err := i.store.Clock(ctx)
		if err != nil {
			return false, i.failed("overriding limits of", err)
		}
		f, version, err := i.kept(ctx)
		if err != nil {
			return false, err
		}
		f.Overrides = slices.DeleteFunc(f.Overrides, func(o policyfile.Override) bool { return o.Until <= clock.Now })
		before := slices.Clone(f.Overrides)
		if err := change(&f, clock.Now); err != nil {
			return false, err
		}
		if same := func(a, b policyfile.Override) bool { return a.Names(b) && a.Since == b.Since }; slices.EqualFunc(before, f.Overrides, same) {
			return false, nil
		}
		if wrong := f.Check(); wrong != nil {
			return false, fmt.Errorf("%w: %s", ErrInvalidPolicies, wrong)
		}
		if again, err := i.putInForce(ctx, f, version, note); !again {
			return err == nil, err
		}
	}
}

// without returns overrides without that of the limit and key of another.
func without(all []policyfile.Override, o Override) []policyfile.Override {
	of := policyfile.Override{Limit: o.Limit, Values: o.Key}
	return slices.DeleteFunc(slices.Clone(all), of.Names)
}

// knows returns an error if policies have no such limit, or one with another key.
func knows(f *policyfile.File, limit string, key []string) error {
	switch fields, known := f.Key(limit); {
	case !known:
		names := append([]string{"queue", "tenant", "user"}, slices.Sorted(maps.Keys(f.Limits))...)
		return fmt.Errorf("%w: there is no limit %q; there are %s", ErrInvalidArgument, limit, strings.Join(names, ", "))
	case len(fields) != len(key):
		return fmt.Errorf("%w: limit %s has the key [%s]: want %d of its values, not %d", ErrInvalidArgument, limit, strings.Join(fields, ", "), len(fields), len(key))
	}
	return nil
}

// overridesOf returns the overrides that count at an instant.
func overridesOf(f policyfile.File, now int64) []Override {
	found, _, _ := f.At(now)
	all := make([]Override, len(found))
	for k, o := range found {
		all[k] = Override{
			Limit: o.Limit, Key: o.Values, Rules: o.Rules, Concurrency: Concurrency(o.Concurrency), Capacity: o.Capacity,
			Until: envelope.Instant(o.Until), Since: envelope.Instant(o.Since), Note: Note{o.Author, o.Reason},
		}
	}
	slices.SortStableFunc(all, func(a, b Override) int { return a.Until.Compare(b.Until) })
	return all
}
