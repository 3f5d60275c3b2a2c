package rules

import (
	"cmp"
	"slices"
)

// Granted is the kind of a rule whose instants somebody else hands out: an action may start at an instant that was granted to it,
// and each grant lets one action start, or says that it is dropped. Grants are told with [State.Grant]. They are no part of what is written of a state: whoever
// reads it has none, and asks for its own.
const Granted Kind = "shared"

// A Grant lets one action of a cost start at an instant, or drops it there.
type Grant struct {
	At, Cost  int64
	Refused   string // name of the rule that drops it; "" if it may start
	Objection string // name of a shadow rule that would not have let it start; "" for none
}

func (g Grant) is(t, cost int64) bool { return g.At == t && g.Cost == cost }

type granted struct{}

// when returns the first grant for that cost from t on; Never if there is none.
func (granted) when(st *State, _ *rule, t, cost int64) int64 {
	for _, g := range st.grants {
		if g.At >= t && g.Cost == cost {
			return g.At
		}
	}
	return Never
}

func (granted) full(*State, *rule) int64 { return 0 }

// spend uses a grant up.
func (granted) spend(st *State, _ *rule, a action) {
	st.use(a.at, a.cost, func(g Grant) bool { return g.Refused == "" })
}

// use takes out the first grant for a cost at an instant that suits.
func (st *State) use(t, cost int64, suits func(Grant) bool) (used Grant) {
	i := slices.IndexFunc(st.grants, func(g Grant) bool { return g.is(t, cost) && suits(g) })
	if i >= 0 {
		used = st.grants[i]
		st.grants = slices.Delete(st.grants, i, i+1)
	}
	return used
}

// Refused returns the name of the rule that drops an action of a cost at an instant; "" if there is none, or a grant that lets it start.
func (st *State) Refused(t int64, cost int) (rule string) {
	for _, g := range st.grants {
		if g.is(t, units(cost)) {
			if rule = g.Refused; rule == "" {
				return ""
			}
		}
	}
	return rule
}

// Refuse takes out a grant that drops an action.
func (st *State) Refuse(t int64, cost int) {
	st.use(t, units(cost), func(g Grant) bool { return g.Refused != "" })
}

// Objection returns the name of the shadow rule that would not have let an action start that uses a grant; "" if there is none.
func (st *State) Objection(t int64, cost int) string {
	for _, g := range st.grants {
		if g.is(t, units(cost)) && g.Refused == "" {
			return g.Objection
		}
	}
	return ""
}

// undo notes that what has used a grant has not started. The grant is not used again: whoever handed it out gets it back.
func (granted) undo(st *State, _ *rule, t, cost int64) {
	st.returned = append(st.returned, Grant{At: t, Cost: cost})
}

// Grant adds a grant. Reset and Decode leave those that there are.
func (st *State) Grant(g Grant) {
	i, _ := slices.BinarySearchFunc(st.grants, g, func(a, b Grant) int { return cmp.Or(cmp.Compare(a.At, b.At), -1) })
	st.grants = slices.Insert(st.grants, i, g)
}

// Grants returns the grants that are not used, in their order. The caller does not change them.
func (st *State) Grants() []Grant { return st.grants }

// Missed takes out the grants that lie before an instant.
func (st *State) Missed(t int64) (missed []Grant) {
	n := 0
	for n < len(st.grants) && st.grants[n].At < t {
		n++
	}
	missed = slices.Clone(st.grants[:n])
	st.grants = slices.Delete(st.grants, 0, n)
	return missed
}

// Returned takes out the grants that were used by actions which have not started.
func (st *State) Returned() []Grant {
	returned := st.returned
	st.returned = nil
	return returned
}
