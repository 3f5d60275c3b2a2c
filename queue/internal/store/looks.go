package store

import (
	"strconv"
	"strings"
)

// A commit reads in the same script, after it has written. What it brings is of one instant, and no other commit
// comes in between: the leader's copy is exact. See package leader, reading.go.

// Looks are what a commit reads when it is done: the state that the commit leaves behind. All slices but Tenants have
// one item for each thing that was asked for, in the order of the calls. A key of a tenant or a user that has another
// type reads as an empty one.
type Looks struct {
	Heads   [][]string  // what [Commit.Read] asked for: entries of lanes, jobs and stubs
	Tenants []Bounded   // by their bounds, the earliest first
	Fronts  [][]Bounded // what [Commit.ReadFront] asked for, by their bounds
	States  []string    // what the rules of scopes remember; "" for nothing
	Waiting []int64     // the backlogs of tenants
	Untaken []int64     // when workers were told the first thing that they have not taken; 0 for nothing
}

// A look is a command that reads, and a function that takes its reply in. Replies come in the order of the looks.
type look struct {
	command string
	keys    []string
	args    []any
	take    func(l *Looks, reply any)
}

// ReadTenants reads a part of the index of tenants.
func (c *Commit) ReadTenants(s Span) {
	c.readBounded(c.own(c.s.key.Tenants(), "zset"), s, func(l *Looks, found []Bounded) { l.Tenants = found })
}

// ReadFront reads a part of the index of the lanes of a tenant and priority.
func (c *Commit) ReadFront(tenant string, priority int, s Span) {
	c.readBounded(c.s.key.Due(tenant, priority), s, func(l *Looks, found []Bounded) { l.Fronts = append(l.Fronts, found) })
}

// readBounded reads a part of an index.
func (c *Commit) readBounded(key string, s Span, take func(*Looks, []Bounded)) {
	read := look{"ZRANGEBYSCORE", []string{key}, []any{s.From, "+inf", "WITHSCORES", "LIMIT", 0, s.N}, nil}
	if s.After != "" {
		read.command, read.args = "BEHIND", []any{s.From, s.After, s.N}
	}
	read.take = func(l *Looks, reply any) { take(l, boundedOf(textsOf(reply))) }
	c.looks = append(c.looks, read)
}

// mostKeys is how many states are read with one command.
const mostKeys = 500

// ReadStates reads what the rules of subjects remember.
func (c *Commit) ReadStates(scopes []string) {
	for len(scopes) > 0 {
		n := min(mostKeys, len(scopes))
		keys := make([]string, n)
		for i, scope := range scopes[:n] {
			keys[i] = c.s.key.State(scope)
		}
		c.looks = append(c.looks, look{"MGET", keys, nil, func(l *Looks, reply any) {
			l.States = append(l.States, textsOf(reply)...)
		}})
		scopes = scopes[n:]
	}
}

// ReadWaiting reads the backlog of a tenant from its counters.
func (c *Commit) ReadWaiting(tenant string) {
	c.looks = append(c.looks, look{"HMGET", []string{c.s.key.Tenant(tenant)}, backlogFields, func(l *Looks, reply any) {
		l.Waiting = append(l.Waiting, backlog(textsOf(reply)))
	}})
}

// ReadMailbox reads since when something waits in a worker's mailbox. A worker that has taken nothing for long may be
// frozen, and gets no more jobs.
func (c *Commit) ReadMailbox(worker string) {
	c.looks = append(c.looks, look{"LINDEX", []string{c.own(c.s.key.Mailbox(worker), "list")}, []any{0}, func(l *Looks, reply any) {
		text, _ := reply.(string)
		l.Untaken = append(l.Untaken, toldAt(text))
	}})
}

// toldAt returns the instant of a message in a mailbox, at least 1; 0 if there is none. A message that begins with no
// instant was not written by a commit: it counts as very old.
func toldAt(message string) int64 {
	if message == "" {
		return 0
	}
	when, _, _ := strings.Cut(message, " ")
	return max(1, number(when)) // what is not of a commit says no instant
}

// backlogFields are the counters of a tenant that say how many of its jobs wait.
var backlogFields = []any{"in", "back", "started", "dropped"}

// backlog returns how many jobs of a tenant wait, by its counters: those that came in, and came back, less those
// that started and were dropped. A counter that is not there is 0. offer.lua computes the same.
func backlog(counters []string) int64 {
	n := make([]int64, 4)
	for k, text := range counters {
		n[k] = number(text)
	}
	return n[0] + n[1] - n[2] - n[3]
}

// boundedOf reads members of an index, each followed by its bound. Redis writes scores as floating point numbers, which
// hold microseconds exactly (below 2^53).
func boundedOf(texts []string) []Bounded {
	found := make([]Bounded, len(texts)/2)
	for i := range found {
		at, _ := strconv.ParseFloat(texts[2*i+1], 64)
		found[i] = Bounded{texts[2*i], int64(at)}
	}
	return found
}

// looksOf reads the replies to what a commit has read.
func (c *Commit) looksOf(heads, replies any) Looks {
	var l Looks
	all, _ := heads.([]any)
	for _, read := range all {
		l.Heads = append(l.Heads, textsOf(read))
	}
	found, _ := replies.([]any)
	for i, reply := range found {
		c.looks[i].take(&l, reply)
	}
	return l
}
