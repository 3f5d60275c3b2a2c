package policyfile

import (
	"fmt"
	"slices"

	"github.com/waterclock/waterclock/throttle"
)

// An Override replaces bounds of exactly one that a limit counts for, until an instant. Overrides stand beside the
// policies that Redis keeps, and in no file of people's: applying a file leaves them as they are.
type Override struct {
	Limit          string   // queue, tenant, user, or the name of a limit
	Fields         []string // of its key, when it was set; nil for queue, tenant and user
	Values         []string // of its key: none of queue, the tenant's name of tenant, both names of user
	Bounds                  // what it does not say is as the policies say: its rules, its concurrency, its capacity
	Since, Until   int64    // µs of Redis's clock; from Until on it counts no more
	Author, Reason string
}

// Names reports whether two overrides are of the same limit and the same values.
func (o Override) Names(other Override) bool {
	return o.Limit == other.Limit && slices.Equal(o.Values, other.Values)
}

// Over returns bounds with what the override says in the place of theirs.
func (o Override) Over(b Bounds) Bounds {
	if len(o.Rules) > 0 {
		b.Rules = o.Rules
	}
	if o.Concurrency != (Concurrency{}) {
		b.Concurrency = o.Concurrency
	}
	if o.Capacity > 0 {
		b.Capacity = o.Capacity
	}
	b.Unlimited = false
	return b
}

// Key returns the fields of the key of a limit; false if the file has no such limit.
func (f File) Key(limit string) (fields []string, known bool) {
	switch limit {
	case "queue":
		return nil, true
	case "tenant":
		return []string{"tenant"}, true
	case "user":
		return []string{"tenant", "user"}, true
	}
	l, known := f.Limits[limit]
	return l.Key, known
}

// At returns the overrides that count at an instant, when the next of them ends, and when the last one of the others has
// ended; 0 for never. An override of a limit that is gone, or has another key by now, does not count.
func (f File) At(now int64) (all []Override, ends, ended int64) {
	for _, o := range f.Overrides {
		switch fields, known := f.Key(o.Limit); {
		case o.Until <= now:
			ended = max(ended, o.Until)
		case known && len(fields) == len(o.Values) && (o.Fields == nil || slices.Equal(fields, o.Fields)):
			all = append(all, o)
			if ends == 0 || o.Until < ends {
				ends = o.Until
			}
		}
	}
	return all, ends, ended
}

// MaxOverrides is how many overrides there are at most at one time: each is a part of what every leader and client reads.
const MaxOverrides = 200

func (f File) checkOverrides() *Problem {
	if n := len(f.Overrides); n > MaxOverrides {
		return &Problem{Path: "overrides", Text: fmt.Sprintf("%d of them; want %d at most", n, MaxOverrides)}
	}
	for i, o := range f.Overrides {
		path := fmt.Sprintf("overrides[%d]", i)
		if o.Until <= o.Since {
			return &Problem{Path: path, Text: "ends before it begins"}
		}
		if o.limitsNothing() {
			return &Problem{Path: path, Text: "limits nothing; want rules, concurrency or capacity"}
		}
		if wrong := o.check(path); wrong != nil {
			return wrong
		}
		if wrong := notOfUsers(path, o.Rules); wrong != nil {
			if fields, _ := f.Key(o.Limit); !slices.Contains(fields, "user") {
				return wrong
			}
		}
		if o.Limit == "queue" && o.Capacity > 0 {
			return &Problem{Path: path, Text: "the queue has no capacity; want one of a tenant, a user or a limit by name"}
		}
		for _, value := range o.Values {
			if value == "" || len(value) > MaxName {
				return &Problem{Path: path, Text: fmt.Sprintf("a value of a key has 1 to %d bytes, not %d", MaxName, len(value))}
			}
		}
	}
	return nil
}

// An overrideEntry is an override as Redis keeps it.
type overrideEntry struct {
	Limit       string
	Fields      []string        `yaml:",omitempty,flow"`
	Key         []string        `yaml:",omitempty,flow"`
	Rules       []throttle.Rule `yaml:",omitempty,flow"`
	Concurrency string          `yaml:",omitempty"`
	Capacity    int             `yaml:",omitempty"`
	Since       int64
	Until       int64
	Author      string `yaml:",omitempty"`
	Reason      string `yaml:",omitempty"`
}

func (o Override) entry() overrideEntry {
	e := overrideEntry{
		Limit: o.Limit, Fields: o.Fields, Key: o.Values, Rules: o.Rules, Capacity: o.Capacity,
		Since: o.Since, Until: o.Until, Author: o.Author, Reason: o.Reason,
	}
	if o.Concurrency != (Concurrency{}) {
		e.Concurrency = fmt.Sprint(written(o.Concurrency))
	}
	return e
}

// overrides reads what a program has written.
func (r *policyReader) overrides(at place) (all []Override) {
	if at.Node == nil {
		return nil
	}
	var entries []overrideEntry
	if err := at.Decode(&entries); err != nil {
		r.fail(at.Line, at.path, "%v", err)
		return nil
	}
	for _, e := range entries {
		o := Override{
			Limit: e.Limit, Fields: e.Fields, Values: e.Key, Bounds: Bounds{Limits: Limits{Rules: e.Rules}, Capacity: e.Capacity},
			Since: e.Since, Until: e.Until, Author: e.Author, Reason: e.Reason,
		}
		if e.Concurrency != "" {
			c, err := concurrency(e.Concurrency)
			if o.Concurrency = c; err != nil {
				r.fail(at.Line, at.path, "concurrency %q; want %s", e.Concurrency, wantConcurrency)
			}
		}
		all = append(all, o)
	}
	return all
}

// ParseConcurrency reads how much runs at once: 20, or 25%. The error says what would be right.
func ParseConcurrency(text string) (Concurrency, error) {
	c, err := concurrency(text)
	if err != nil {
		return c, fmt.Errorf("%q; want %s", text, wantConcurrency)
	}
	return c, nil
}
