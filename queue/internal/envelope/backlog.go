package envelope

import (
	"net/url"
	"strings"
)

// Capacity bounds how many jobs wait that a user, or a limit by name for the values of its key, counts. How many that are is
// known without a look at policies or jobs:
//
//   - The lanes of a user without a label are three, one for each priority: their lengths are added up.
//   - A lane with a label says in it whose backlogs count its jobs. The part of such a limit begins with "+", and has the
//     values of all fields of its key; CountedUser stands for the user:
//
//     +user&marketing&+domain=gmail.com
//
// So whoever puts a job into a lane, or takes one out, changes the same counters, whatever the policies are by then.

// CountedUser is the part of a label that says that the user's backlog counts the jobs of the lane.
const CountedUser = "+user"

// Backlogs returns the scopes whose backlogs count the jobs of a lane, as its label says; nil for a lane without one.
func (l Lane) Backlogs() (scopes []string) {
	if !strings.Contains(l.Label, "+") {
		return nil
	}
	for part := range strings.SplitSeq(l.Label, "&") {
		name, counted := strings.CutPrefix(part, "+")
		switch {
		case part == CountedUser:
			scopes = append(scopes, UserScope(l.Tenant, l.User))
		case counted:
			limit, text, keyed := strings.Cut(name, "=")
			scopes = append(scopes, ScopeOfLimit(limit, labelValues(text, keyed)))
		}
	}
	return scopes
}

// labelValues reads the values of a key in a label.
func labelValues(text string, keyed bool) (values []string) {
	if !keyed {
		return nil
	}
	for value := range strings.SplitSeq(text, ",") {
		plain, err := url.PathUnescape(value)
		if err != nil {
			plain = value // nobody has escaped it
		}
		values = append(values, plain)
	}
	return values
}

// PlainLanes returns the lanes of a user without a label: one for each priority.
func PlainLanes(tenant, user string) []Lane {
	return []Lane{{tenant, user, High, ""}, {tenant, user, Normal, ""}, {tenant, user, Low, ""}}
}
