package rules

import (
	"cmp"
	"slices"
)

// Granted is the kind of a rule whose instants somebody else hands out: an action may start at an instant that was granted to it,
// and each grant lets one action start. A grant may also say that actions are dropped at its instant. Grants are told with [State.Grant]. They
// are no part of what is written of a state: whoever reads it has none, and asks for its own.
const Granted Kind = "shared"

// A Grant lets one action of a cost start at an instant, or drops all of that cost there.
type Grant struct {
	At, Cost  int64
	Refused   string // name of the rule that drops them; "" if one may start
	Objection string // name of a shadow rule that would not have let it start; "" for none
}

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
	if i := st.granted(a.at, a.cost); i >= 0 {
		st.grants = slices.Delete(st.grants, i, i+1)
	}
}

// granted returns the index of the first grant that lets an action of a cost start at an instant; -1 if there is none.
func (st *State) granted(t, cost int64) int {
	return slices.IndexFunc(st.grants, func(g Grant) bool { return g.At == t && g.Cost == cost && g.Refused == "" })
}

// Refused returns the name of the rule that drops actions of a cost at an instant; "" if there is none, or a grant that lets one start.
func (st *State) Refused(t int64, cost int) (rule string) {
	if len(st.grants) == 0 || st.granted(t, units(cost)) >= 0 {
		return ""
	}
	for _, g := range st.grants {
		if g.At == t && g.Cost == units(cost) {
			return g.Refused
		}
	}
	return ""
}

// Objection returns the name of the shadow rule that would not have let an action start that uses a grant; "" if there is none.
func (st *State) Objection(t int64, cost int) string {
	if i := st.granted(t, units(cost)); i >= 0 {
		return st.grants[i].Objection
	}
	return ""
}

// undo notes that what has used a grant has not started. The grant is not used again: whoever handed it out gets it back.
func (granted) undo(st *State, _ *rule, t, cost int64) {
	st.returned = append(st.returned, Grant{At: t, Cost: cost})
}

// Grant adds a grant, or a refusal that is not known yet. Reset and Decode leave those that there are.
func (st *State) Grant(g Grant) {
	if g.Refused != "" && slices.Contains(st.grants, g) {
		return
	}
	i, _ := slices.BinarySearchFunc(st.grants, g, func(a, b Grant) int { return cmp.Or(cmp.Compare(a.At, b.At), -1) })
	st.grants = slices.Insert(st.grants, i, g)
}

// Grants returns the grants that are not used, in their order. The caller does not change them.
func (st *State) Grants() []Grant { return st.grants }

// Missed takes out the grants that lie before an instant, and returns those that would have let an action start.
func (st *State) Missed(t int64) (missed []Grant) {
	n := 0
	for n < len(st.grants) && st.grants[n].At < t {
		if g := st.grants[n]; g.Refused == "" {
			missed = append(missed, g)
		}
		n++
	}
	st.grants = slices.Delete(st.grants, 0, n)
	return missed
}

// Returned takes out the grants that were used by actions which have not started.
func (st *State) Returned() []Grant {
	returned := st.returned
	st.returned = nil
	return returned
}
