package store

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// Jobs that never run, or never again, leave a record in a stream: dropped ones in drops, those refused before
// they were offered in refused, and those without attempts left in dead. Commits write them, changes, and offers
// (offer.lua). [Store.Drops] and [Store.Dead] read them.

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

// RecordRefused notes that a job was refused before it was offered, and why. Its stamp is
// given to it here.
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
