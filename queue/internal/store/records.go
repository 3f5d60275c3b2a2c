package store

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// Jobs that never run, or never again, leave a record in a stream: those dropped from lanes in drops, those refused at
// the door in refused, and those without attempts left in dead. Commits write them, changes, and offers (offer.lua).
// [Store.Drops] and [Store.Dead] read them. Of a dropped job the record keeps the beginning, for people; of a dead job
// all, since it can be revived.

// The streams keep so many of the newest records, about.
const (
	dropsKept   = 100_000
	deadKept    = 100_000
	refusedKept = 10_000
)

// headLen is how much of a job that never runs is kept: all that says who it was.
const headLen = 2048

// droppedFor begins the names of the queue's counters of jobs that were dropped or refused for a reason;
// offer.lua knows it too.
const droppedFor = "dropped:"

// dropRecord returns the words of XADD that record a job which never runs.
func dropRecord(kept int, lane Lane, reason, rule, job string, now int64) []any {
	return []any{"MAXLEN", "~", kept, "*", "lane", lane.Name(), "reason", reason, "rule", rule, "at", now, "job", job[:min(len(job), headLen)]}
}

// deadRecord returns the words of XADD that keep a job which has no attempts left.
func deadRecord(lane Lane, why, job string, now int64) []any {
	return []any{"MAXLEN", "~", deadKept, "*", "lane", lane.Name(), "error", why, "at", now, "job", job}
}

// RecordRefused notes that a job was refused before it was offered, and why. Its stamp, which a record shows as the
// instant of the offer, is given to it here; another job may have the same. It takes two round trips.
func (s *Store) RecordRefused(ctx context.Context, lane Lane, reason string, job *envelope.Envelope) error {
	view, err := s.Look(ctx, nil)
	if err != nil {
		return err
	}
	named := *job
	named.Stamp = envelope.Stamp(view.Now)
	pipe := s.client.TxPipeline()
	pipe.Do(ctx, append([]any{"XADD", s.key.Refused()}, dropRecord(refusedKept, lane, reason, "", named.String(), view.Now)...)...)
	pipe.HIncrBy(ctx, s.key.Meta(), droppedFor+reason, 1)
	if reason == ReasonDuplicate {
		pipe.HIncrBy(ctx, s.key.Meta(), "duplicates", 1)
	}
	_, err = pipe.Exec(ctx)
	return err
}

// ReasonDuplicate is the reason of a refused job that counts as a duplicate.
const ReasonDuplicate = "duplicate"

// A Record tells of a job that was dropped, refused, or is dead.
type Record struct {
	Entry        string // its ID in the stream, by which a dead job is revived or deleted
	Lane         Lane   // the zero value if the record cannot be read
	Reason, Rule string // of a dropped or refused job; Rule may be ""
	Error        string // of a dead job
	At           int64  // when it was dropped, refused or buried
	Job          string // the envelope; of a dropped or refused job only the beginning
}

// Drops returns the n newest records of dropped jobs, of those refused at the door and of
// those dropped later, newest first, in one round trip.
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

// Dead returns n dead jobs, newest first: those that died before the one of an entry, or the newest of all if
// that is "". It takes one round trip.
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

// fieldsOf returns a function that reads a field of a message; "" for one that is not there.
func fieldsOf(m redis.XMessage) func(name string) string {
	return func(name string) string { text, _ := m.Values[name].(string); return text }
}

// recordOf reads an entry of drops, refused or dead. Fields of a stream that it is not of are "".
func recordOf(message redis.XMessage) Record {
	field := fieldsOf(message)
	lane, _ := envelope.ParseLane(field("lane")) // a record without a lane is shown without
	return Record{
		Entry: message.ID, Lane: lane, Reason: field("reason"), Rule: field("rule"), Error: field("error"), At: number(field("at")), Job: field("job"),
	}
}

// Drop records that a job never runs, and why. Whoever calls it takes the job out of its lane, and counts it for the
// tenant.
func (c *Commit) Drop(lane Lane, job, reason, rule string, now int64) {
	c.op(&c.extra, "XADD", c.s.key.Drops(), dropRecord(dropsKept, lane, reason, rule, job, now)...)
	c.Count("", droppedFor+reason, 1)
}

// Bury keeps a job whose attempts are exhausted, or which cannot run, among the dead.
func (c *Commit) Bury(lane Lane, job, why string, now int64) {
	c.op(&c.extra, "XADD", c.own(c.s.key.Dead(), "stream"), deadRecord(lane, why, job, now)...)
	c.Count(lane.Tenant, "dead", 1)
}

// Unread buries a job that leaves its lane and cannot be read. It was neither started nor dropped: so that the backlog,
// which is computed from counters, gets shorter by it, it counts as one that never came into a lane.
func (c *Commit) Unread(lane Lane, entry, why string, now int64) {
	c.Count(lane.Tenant, "in", -1)
	c.Count(lane.Tenant, "other", 1)
	c.Bury(lane, entry, why, now)
}
