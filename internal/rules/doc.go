// Package rules decides when an action may start, in plain Go: no store, no clock, no
// goroutine. Package throttle and the queue decide with it.
//
// A [Rule] is one limit. The rules of a subject (a user, a tenant) are compiled once into
// a [Set], which never changes and serves every subject under the same rules. What is
// remembered of one subject is a [State], a few bytes that [State.Append] writes and
// [State.Decode] reads:
//
//	set := rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 10, Period: time.Minute})
//	var st rules.State
//	if err := st.Decode(stored); err != nil {
//		return err
//	}
//	at, _ := set.Earliest(&st, now, 1)
//	if at == now && set.Refusing(&st, at, 1) < 0 {
//		set.Spend(&st, rules.At(at), 1, set.Objecting(&st, at, 1) < 0)
//		set.Forget(&st, now)
//		stored = string(st.Append(nil))
//	}
//
// All instants are microseconds since the Unix epoch, from 0 to [Never]. Arithmetic ends
// at Never and does not overflow. Nothing here allocates once a State has grown to its
// size.
//
// # States outlive rules
//
// State is kept by the kind of a rule, and its place among the rules of that kind. So a
// rule whose numbers change looks at what was spent under the old ones, and what it reads
// is at least as strict as the truth: a rule that is tightened for a moment and loosened
// again never admits more than the loosest rule in force. What belongs to rules that the
// set does not have is kept until its own rule would have forgotten it.
//
// # Files
//
// Each kind of rule is one file. slots.go holds the log that windows and spacings share,
// set.go what is compiled, decide.go the decisions, state.go and codec.go the memory.
package rules
