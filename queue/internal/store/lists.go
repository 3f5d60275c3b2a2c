package store

import (
	"cmp"
	"slices"
	"strings"
)

// What a commit collects is written here: into the lists of the script, with commands on the same key put together. A
// command costs Redis several times what an argument costs, so sixty jobs for one worker are one HSET with a hundred
// and twenty arguments. Keys are numbered, so that each is sent once, and declared.
//
// A commit is sent once, and used again when its reply has come ([Commit.Reset]): its lists and maps are about as large
// as those of the next one will be, so that a busy leader allocates little.

// reads asks for the first n entries of a lane.
type reads struct {
	lane Lane
	n    int
}

// A lowering lets members of an index be due at an instant, unless they are due before. All members that are lowered in
// the same way are one command.
type lowering struct {
	index string // its key
	there bool   // only members that are there: none is added
	at    int64
}

// lowered is one member of a lowering.
type lowered struct {
	lowering
	name string
}

// A counter is one of a tenant, or, for the tenant "", of the queue.
type counter struct{ tenant, name string }

// takes are the first jobs of a lane, which leave it: their number in the list, and where
// among its arguments it says how many more are to be read.
type takes struct{ number, more int }

// A list is what one part of the script works through: how many items, and their words one after the other. Each part
// knows how many words an item has, or the item says so.
type list struct {
	n    int
	args []any
}

// add adds an item and returns its number, from 1.
func (l *list) add(args ...any) int {
	l.n++
	l.args = append(l.args, args...)
	return l.n
}

// own returns a key of the queue itself, and lets the script look at its type, once. Where it has another type the
// commit does nothing and fails with a [BrokenKeyError].
func (c *Commit) own(key, kind string) string {
	if !c.typed[key] {
		c.typed[key] = true
		c.kinds.add(c.keys.number(key), kind)
	}
	return key
}

// claimsOf returns the number of the key of a worker's claims. It is asked for every job, so the number is kept.
func (c *Commit) claimsOf(worker string) int {
	n := c.running[worker]
	if n == 0 {
		n = c.keys.number(c.own(c.s.key.Running(worker), "hash"))
		c.running[worker] = n
	}
	return n
}

// op writes a command on a key: how many arguments, the command, the key's number.
func (c *Commit) op(l *list, command, key string, args ...any) {
	c.opOn(l, command, c.keys.number(key), args...)
}

// opOn is op on the key of a number.
func (c *Commit) opOn(l *list, command string, key int, args ...any) {
	l.add(len(args), command, key)
	l.args = append(l.args, args...)
}

// mostWords is how many words one command has at most: Lua passes no more than 8,000 values to a function.
const mostWords = 1000

// opEach is op on many members, in as many commands as they need. Each has the flags.
func (c *Commit) opEach(l *list, command string, key int, flags, members []any) {
	for chunk := range slices.Chunk(members, mostWords) {
		l.add(len(flags)+len(chunk), command, key)
		l.args = append(append(l.args, flags...), chunk...)
	}
}

// lists returns the lists, in the order in which the script reads them.
func (c *Commit) lists() []*list {
	return []*list{&c.sums, &c.kinds, &c.take, &c.check, &c.folds, &c.claim, &c.write, &c.memo, &c.acks, &c.told, &c.extra, &c.fill, &c.look}
}

// is checks that a command, such as HEXISTS or ZSCORE, finds a name in a key, or does not.
func (c *Commit) is(command, key, name string, there bool) int {
	return c.check.add("is", command, c.keys.number(key), name, flag(there))
}

// isA checks that a key has a type, or is not there.
func (c *Commit) isA(key, kind string) int { return c.check.add("type", c.keys.number(key), kind) }

// lower adds a member, as it stands in the index, to a lowering, and reports whether it is new there.
func (c *Commit) lower(l lowering, name string) bool {
	if c.seen[lowered{l, name}] {
		return false
	}
	c.seen[lowered{l, name}] = true
	if c.lowered[l] == nil {
		c.lowers = append(c.lowers, l)
	}
	c.lowered[l] = append(c.lowered[l], l.at, name)
	return true
}

// gather turns what was collected into commands, when the commit is sent. Workers are sorted, so that the same commit
// has always the same words.
func (c *Commit) gather() {
	if c.gathered {
		return
	}
	c.gathered = true
	for _, worker := range sortedKeys(c.claims) {
		c.opEach(&c.claim, "HSET", c.claimsOf(worker), nil, c.claims[worker])
	}
	for _, worker := range sortedKeys(c.ended) {
		c.opEach(&c.claim, "HDEL", c.claimsOf(worker), nil, c.ended[worker])
	}
	for _, worker := range sortedKeys(c.mailboxes) {
		c.told.add(c.keys.number(c.own(c.s.key.Mailbox(worker), "list")), c.mailboxes[worker])
	}
	var lower list // before bounds are written that are later
	for _, l := range c.lowers {
		flags := []any{"LT"}
		if l.there {
			flags = []any{"XX", "LT"}
		}
		c.opEach(&lower, "ZADD", c.keys.number(l.index), flags, c.lowered[l])
	}
	if lower.n > 0 {
		c.extra = list{lower.n + c.extra.n, append(lower.args, c.extra.args...)}
	}
	for _, r := range c.reads {
		var taken takes
		if !c.put[r.lane] { // otherwise what a check reads is not what stays
			taken = c.taken[r.lane]
		}
		if taken.number > 0 {
			c.take.args[taken.more] = r.n
		}
		c.fill.add(c.keys.number(c.s.key.Lane(r.lane)), c.keys.number(c.s.key.Due(r.lane.Tenant, r.lane.Priority)),
			r.lane.Member(), r.n, taken.number)
	}
	for _, l := range c.looks {
		c.look.add(len(l.keys)+len(l.args), l.command, len(l.keys))
		for _, key := range l.keys {
			c.look.args = append(c.look.args, c.keys.number(key))
		}
		c.look.args = append(c.look.args, l.args...)
	}
	c.gatherCounters()
	c.gatherBacklogs()
}

// gatherCounters writes by how much counters are more. Those of the queue stand together, names first.
func (c *Commit) gatherCounters() {
	counters := make([]counter, 0, len(c.counters))
	for of, by := range c.counters {
		if by != 0 {
			counters = append(counters, of)
		}
	}
	slices.SortFunc(counters, func(a, b counter) int {
		return cmp.Or(strings.Compare(a.tenant, b.tenant), strings.Compare(a.name, b.name))
	})
	var amounts []any
	for _, of := range counters {
		if of.tenant != "" {
			c.op(&c.extra, "HINCRBY", c.s.key.Tenant(of.tenant), of.name, c.counters[of])
			continue
		}
		c.sums.add(of.name)
		amounts = append(amounts, c.counters[of])
	}
	c.sums.args = append(c.sums.args, amounts...)
}

// sortedKeys returns the keys of a map in their order.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
