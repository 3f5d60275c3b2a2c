package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// What people look at is read without a leader and changes nothing. Numbers that have to agree with each other are read
// at one instant, by one script (look.lua) or one transaction (Totals); long lists are read in steps.

// A View is what says, at one instant, when jobs may start.
type View struct {
	Now      int64             // that instant
	Policies int64             // the version in force; 0 for none
	Pauses   map[string]int64  // of the scopes that were asked for: scope → until when, which may have passed
	States   map[string]string // what the rules of these scopes remember; none for a scope without a state
}

// Look returns the pauses and the states of the given scopes, in one round trip. Without scopes it returns the time,
// and finds out whether the keys have this program's schema: many changes begin with it.
func (s *Store) Look(ctx context.Context, scopes []string) (View, error) {
	v, _, err := s.look(ctx, scopes)
	return v, err
}

// look does the same, and returns fields of meta of the same instant; "" for one that is not there.
func (s *Store) look(ctx context.Context, scopes []string, fields ...string) (v View, meta map[string]string, err error) {
	keys := []string{s.key.Meta(), s.key.Paused()}
	for _, scope := range scopes {
		keys = append(keys, s.key.State(scope))
	}
	args := []any{Schema}
	for _, scope := range scopes {
		args = append(args, scope)
	}
	for _, field := range fields {
		args = append(args, field)
	}
	reply := readFields(s.run(ctx, "look", keys, args...), 5)
	v = View{Now: reply.int(0), Policies: reply.int(1), Pauses: pairs(reply.texts(2)), States: make(map[string]string)}
	for i, text := range reply.texts(3) {
		if text != "" && i < len(scopes) {
			v.States[scopes[i]] = text
		}
	}
	meta = make(map[string]string, len(fields))
	for i, value := range reply.texts(4) {
		meta[fields[i]] = value
	}
	return v, meta, reply.err
}

// Clock reads Redis's clock, on the node that has the queue, in one round trip.
func (s *Store) Clock(ctx context.Context) (Reading, error) {
	asked := time.Now()
	v, err := s.Look(ctx, nil)
	return Reading{v.Now, asked, time.Now()}, err
}

// Counts are the counters of a queue, since it was first used, or of a tenant, since its counters began: they expire
// when it has had nothing to do for a day. Waiting is a number of the present, all others are totals. Done and
// Duplicates are counted for the queue alone: jobs that were done, and tasks of the inbox that were refused for their
// IDs. Failed counts attempts.
type Counts struct {
	Offered, Waiting, Started, Done, Failed, Dropped, Dead, Duplicates int64
}

// readCounts reads the counters from their fields. A job enters a lane at the door (in)
// and again when it matures, is requeued or revived (back); it leaves when it is claimed
// (started) or dropped (dropped). Other jobs were offered without entering a lane (other): they replaced one, wait for
// their time, or were refused. For each that was refused, and each that was replaced, out is one more.
func readCounts(fields map[string]string) Counts {
	n := func(name string) int64 { return number(fields[name]) }
	return Counts{
		Offered: n("in") + n("other"), Waiting: n("in") + n("back") - n("started") - n("dropped"), Started: n("started"),
		Done: n("done"), Failed: n("failed"), Dropped: n("dropped") + n("out"), Dead: n("dead"), Duplicates: n("duplicates"),
	}
}

// Totals are the state of a queue. Later and Running are how many jobs wait for their time, and how many claims there
// are. Blocked is for how long jobs have waited because of each rule, in µs, by the rules' names; Shadowed how many
// starts each shadow rule would not have allowed; Reasons how many jobs were dropped or refused for each reason.
type Totals struct {
	Counts
	Later, Running             int64
	DeadNow                    int64 // neither revived nor deleted
	Blocked, Shadowed, Reasons map[string]int64
	Last                       LastAttempts
}

// Totals returns the state of the queue at one instant, except for DeadNow, which is read before. The claims are in a
// hash for each worker, so the workers are read first, and the transaction that reads their claims reads the workers
// again: if one has come or gone meanwhile, it is read once more. It takes two round trips, or a few.
func (s *Store) Totals(ctx context.Context) (Totals, error) {
	first := s.client.Pipeline()
	fleet, dead := first.ZRange(ctx, s.key.Workers(), 0, -1), first.XLen(ctx, s.key.Dead())
	err := ask(ctx, first)
	workers, err := fleet.Val(), errors.Join(err, brokenOf("zset", fleet))
	for err == nil {
		pipe := s.client.TxPipeline()
		meta, later := pipe.HGetAll(ctx, s.key.Meta()), pipe.ZCard(ctx, s.key.Later())
		now := pipe.ZRange(ctx, s.key.Workers(), 0, -1)
		running := add(pipe, workers, s.countClaims(ctx))
		if err = errors.Join(ask(ctx, pipe), brokenOf("hash", meta), brokenOf("zset", later), brokenOf("zset", now), brokenOf("hash", running...)); err != nil {
			break
		}
		if known := now.Val(); !sameMembers(workers, known) {
			workers = known // one came or went: look again
			continue
		}
		t := Totals{Counts: readCounts(meta.Val()), Later: later.Val(), DeadNow: dead.Val(), Blocked: aboutRules(meta.Val(), blockedBy), Shadowed: aboutRules(meta.Val(), shadowedBy), Reasons: aboutRules(meta.Val(), droppedFor), Last: readLast(meta.Val())}
		for _, held := range running {
			t.Running += held.Val()
		}
		return t, checkSchema(meta.Val()["schema"])
	}
	return Totals{}, err
}

// sameMembers reports whether two lists hold the same, in any order.
func sameMembers(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// aboutRules returns the counters whose names begin with a prefix, by the rest of their names: the rules, or reasons,
// that they are about.
func aboutRules(fields map[string]string, prefix string) map[string]int64 {
	all := make(map[string]int64)
	for name, text := range fields {
		if rule, found := strings.CutPrefix(name, prefix); found {
			all[rule] = number(text)
		}
	}
	return all
}
