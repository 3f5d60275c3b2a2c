package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// What people look at is read without a leader and changes nothing. Numbers that have to agree with each other are read
// by one script at one instant (look.lua); long lists are read in steps.

// A View is what says, at one instant, when jobs may start.
type View struct {
	Now      int64
	Policies int64            // version
	Pauses   map[string]int64 // scope → until when, those that were asked for
	States   map[string]string
}

// Look returns the pauses and the states of the given scopes.
func (s *Store) Look(ctx context.Context, scopes []string) (View, error) {
	v, _, err := s.look(ctx, scopes)
	return v, err
}

// look returns fields of meta of the same instant, too.
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

// Clock reads Redis's clock, on the node that has the queue.
func (s *Store) Clock(ctx context.Context) (Reading, error) {
	asked := time.Now()
	v, err := s.Look(ctx, nil)
	return Reading{v.Now, asked, time.Now()}, err
}

// Counts are the counters of a queue or of a tenant.
type Counts struct {
	Offered, Waiting, Started, Done, Failed, Dropped, Dead, Duplicates int64
}

// readCounts reads the counters from their fields. A job enters a lane at the door (in)
// and again when it matures, is requeued or revived (back); it leaves when it is claimed
// (started) or dropped. Other jobs were offered without entering a lane, and some were
// dropped without (out).
func readCounts(fields map[string]string) Counts {
	n := func(name string) int64 { return number(fields[name]) }
	return Counts{
		Offered: n("in") + n("other"), Waiting: n("in") + n("back") - n("started") - n("dropped"), Started: n("started"),
		Done: n("done"), Failed: n("failed"), Dropped: n("dropped") + n("out"), Dead: n("dead"), Duplicates: n("duplicates"),
	}
}

// Totals are the state of a queue.
type Totals struct {
	Counts
	Later, Running             int64
	DeadNow                    int64 // neither revived nor deleted
	Blocked, Shadowed, Reasons map[string]int64
	Last                       LastAttempts
}

// Totals returns the state of the queue at one instant.
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

// aboutRules returns the counters whose names begin so, by the rules, or reasons, that they are
// about.
func aboutRules(fields map[string]string, prefix string) map[string]int64 {
	all := make(map[string]int64)
	for name, text := range fields {
		if rule, found := strings.CutPrefix(name, prefix); found {
			all[rule] = number(text)
		}
	}
	return all
}
