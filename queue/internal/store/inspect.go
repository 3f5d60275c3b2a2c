package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
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

// A TenantView is the state of a tenant.
type TenantView struct {
	Tenant string
	Counts
	Next int64 // no job of it starts before; 0 if none waits
}

// Tenants returns the state of tenants.
func (s *Store) Tenants(ctx context.Context, tenants []string) ([]TenantView, error) {
	pipe := s.client.Pipeline()
	fields := add(pipe, tenants, func(pipe redis.Pipeliner, tenant string) *redis.MapStringStringCmd {
		return pipe.HGetAll(ctx, s.key.Tenant(tenant))
	})
	next := add(pipe, tenants, func(pipe redis.Pipeliner, tenant string) *redis.FloatCmd {
		return pipe.ZScore(ctx, s.key.Tenants(), Escape(tenant))
	})
	err := ask(ctx, pipe)
	all := make([]TenantView, len(tenants))
	for i, tenant := range tenants {
		all[i] = TenantView{tenant, readCounts(fields[i].Val()), int64(next[i].Val())}
	}
	return all, err
}

// DuePage returns the names of tenants with waiting jobs in the order in which they
// are due.
func (s *Store) DuePage(ctx context.Context, from, n int) ([]string, error) {
	names, err := s.client.ZRange(ctx, s.key.Tenants(), int64(from), int64(from+n-1)).Result()
	for i, name := range names {
		names[i] = Unescape(name)
	}
	return names, err
}

// Lengths returns how many jobs wait in each lane.
func (s *Store) Lengths(ctx context.Context, lanes []Lane) ([]int64, error) {
	found, err := each(ctx, s, lanes, func(pipe redis.Pipeliner, lane Lane) *redis.IntCmd { return pipe.LLen(ctx, s.key.Lane(lane)) })
	return values(found), err
}

// A Page is a part of a lane.
type Page struct {
	Lane
	From, N int
}

// FirstPages returns the pages with the first n entries of lanes.
func FirstPages(lanes []Lane, n int) []Page {
	pages := make([]Page, len(lanes))
	for i, lane := range lanes {
		pages[i] = Page{Lane: lane, N: n}
	}
	return pages
}

// An Entry is what stands in a lane: a job, or a stub for the job under a collapse key.
type Entry struct {
	Lane
	Place int // from 1
	Text  string
	Job   string // "" if there is none under the collapse key
}

// Folded reports whether the entry is a stub.
func (e Entry) Folded() bool { return strings.HasPrefix(e.Text, "=") }

// Heads returns parts of lanes as they are there: jobs, and stubs, see [Entry].
func (s *Store) Heads(ctx context.Context, pages []Page) ([][]string, error) {
	found, err := each(ctx, s, pages, func(pipe redis.Pipeliner, p Page) *redis.StringSliceCmd {
		return pipe.LRange(ctx, s.key.Lane(p.Lane), int64(p.From), int64(p.From+p.N-1))
	})
	return values(found), err
}

// Entries returns parts of lanes, one after the other, with the jobs of stubs.
func (s *Store) Entries(ctx context.Context, pages []Page) ([]Entry, error) {
	found, err := s.Heads(ctx, pages)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	var folded []Folded
	for i, p := range pages {
		for k, text := range found[i] {
			e := Entry{Lane: p.Lane, Place: p.From + k + 1, Text: text, Job: text}
			if e.Folded() {
				folded = append(folded, Folded{p.Tenant, p.User, text[1:]})
			}
			entries = append(entries, e)
		}
	}
	jobs, err := s.FoldedJobs(ctx, folded)
	for i := range entries {
		if len(jobs) > 0 && entries[i].Folded() {
			entries[i].Job, jobs = jobs[0], jobs[1:]
		}
	}
	return entries, err
}

// Payloads returns payloads that are kept apart; "" for one that is gone.
func (s *Store) Payloads(ctx context.Context, spilled []string) ([]string, error) {
	if len(spilled) == 0 {
		return nil, nil
	}
	keys := make([]string, len(spilled))
	for i, name := range spilled {
		keys[i] = s.key.Body(name)
	}
	found, err := s.client.MGet(ctx, keys...).Result()
	return textsOf(found), err
}

// A Record tells of a job that was dropped, or is dead.
type Record struct {
	Entry        string // of the stream
	Lane         Lane
	Reason, Rule string
	Error        string
	At           int64
	Job          string // of a dropped job only the beginning
}

// Drops returns the newest records of dropped jobs, of those refused at the door and of
// those dropped later, newest first.
func (s *Store) Drops(ctx context.Context, n int) ([]Record, error) {
	streams := []string{s.key.Drops(), s.key.Refused()}
	found, err := each(ctx, s, streams, func(pipe redis.Pipeliner, stream string) *redis.XMessageSliceCmd {
		return pipe.XRevRangeN(ctx, stream, "+", "-", int64(n))
	})
	if err = errors.Join(err, brokenOf("stream", found...)); err != nil {
		return nil, err
	}
	all := recordsOf(slices.Concat(values(found)...))
	slices.SortStableFunc(all, func(a, b Record) int { return cmp.Compare(b.At, a.At) })
	return all[:min(n, len(all))], nil
}

// Dead returns the newest dead jobs, newest first, from behind an entry on; all if that is "".
func (s *Store) Dead(ctx context.Context, before string, n int) ([]Record, error) {
	from := "+"
	if before != "" {
		from = "(" + before
	}
	entries, err := s.client.XRevRangeN(ctx, s.key.Dead(), from, "-", int64(n)).Result()
	return recordsOf(entries), err
}

// recordsOf reads entries of drops, refused or dead.
func recordsOf(messages []redis.XMessage) []Record {
	records := make([]Record, len(messages))
	for i, message := range messages {
		records[i] = recordOf(message)
	}
	return records
}

// fieldsOf returns what reads the fields of a message; "" for one that is not there.
func fieldsOf(m redis.XMessage) func(name string) string {
	return func(name string) string { text, _ := m.Values[name].(string); return text }
}

// recordOf reads one of them.
func recordOf(message redis.XMessage) Record {
	field := fieldsOf(message)
	lane, _ := envelope.ParseLane(field("lane")) // a record without a lane is shown without
	return Record{
		Entry: message.ID, Lane: lane, Reason: field("reason"), Rule: field("rule"), Error: field("error"), At: number(field("at")), Job: field("job"),
	}
}

// A WorkerView is a worker of the fleet.
type WorkerView struct {
	Name  string
	Lease int64 // until when it holds
	WorkerRecord
	Load
}

// Fleet returns all workers that hold a lease, or have jobs of one that has ended.
func (s *Store) Fleet(ctx context.Context) ([]WorkerView, error) {
	leases, err := s.Leases(ctx)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(leases))
	records, loads, err := s.Records(ctx, names)
	if err != nil {
		return nil, err
	}
	workers := make([]WorkerView, len(names))
	for i, name := range names {
		workers[i] = WorkerView{name, leases[name], records[i], loads[i]}
	}
	return workers, nil
}

// checkSchema returns an error for keys of another schema; "" are none.
func checkSchema(schema string) error {
	if schema == "" || schema == Schema {
		return nil
	}
	return fmt.Errorf("%w: %s; this program reads %s: drain the queue with the version that wrote it, see the changelog",
		ErrSchema, schema, Schema)
}
