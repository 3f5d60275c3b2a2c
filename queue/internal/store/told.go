package store

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A job may say who is told how it has ended (envelope.Callback). The ends stand in three streams, each entry written by the
// same script that ends the job: done (of such jobs alone), drops and dead. Whoever tells, reads them from where it was and
// offers a job of another queue for each end. Only then it notes how far it is. So an end is told at least once; the jobs
// have IDs made of stream and entry, and so each is accepted once.
//
// The hash told says how far it is. It exists once a job with a callback was offered: until then nobody has to look.

// CallbackQueue returns the name of the queue of the jobs that tell how jobs of a queue have ended.
func CallbackQueue(queue string) string { return queue + "-callbacks" }

// The streams of ends.
const (
	EndDone    = "done"
	EndDropped = "drops"
	EndDead    = "dead"
)

// An End is how a job has ended.
type End struct {
	Stream string // one of those above
	Record
}

// ToldUntil says of each stream of ends the last entry that was told.
type ToldUntil map[string]string

// CallsBack notes that jobs with callbacks are offered, in one round trip: before the first of them is.
func (s *Store) CallsBack(ctx context.Context) error {
	return asBroken(s.client.HSetNX(ctx, s.key.Told(), EndDone, "0-0").Err(), s.key.Told(), "hash")
}

// Ends returns ends of jobs with callbacks that were not told, and how far they reach: of up to n entries of each stream. It
// takes two round trips, and one in a queue that has had no such jobs. More says that there may be others.
func (s *Store) Ends(ctx context.Context, n int) (ends []End, until ToldUntil, more bool, err error) {
	told, err := s.client.HGetAll(ctx, s.key.Told()).Result()
	if err != nil || len(told) == 0 {
		return nil, nil, false, asBroken(err, s.key.Told(), "hash")
	}
	streams := []string{EndDone, EndDropped, EndDead}
	keys := map[string]string{EndDone: s.key.Done(), EndDropped: s.key.Drops(), EndDead: s.key.Dead()}
	found, err := each(ctx, s, streams, func(pipe redis.Pipeliner, stream string) *redis.XMessageSliceCmd {
		from := "-"
		if last := told[stream]; last != "" {
			from = "(" + last
		}
		return pipe.XRangeN(ctx, keys[stream], from, "+", int64(n))
	})
	if err != nil {
		return nil, nil, false, err
	}
	until = make(ToldUntil)
	for i, stream := range streams {
		entries := found[i].Val()
		for _, r := range recordsOf(entries) {
			if head, ok := envelope.Head(r.Job); ok {
				ends = append(ends, endsOf(stream, r, head)...)
			}
			until[stream] = r.Entry
		}
		more = more || len(entries) == n
	}
	return ends, until, more, nil
}

// endsOf returns the ends of which an entry tells: of a job, or of each member of a digest that is dead.
func endsOf(stream string, r Record, job *envelope.Envelope) (ends []End) {
	for _, part := range job.Parts() {
		of := r
		if part != job {
			of.Entry, of.Job = r.Entry+"."+part.Stamp, part.String()
		}
		if part.Callback != "" {
			ends = append(ends, End{stream, of})
		}
	}
	return ends
}

// Told notes how far ends were told, and forgets those of jobs that are done, in one round trip.
func (s *Store) Told(ctx context.Context, until ToldUntil) error {
	if len(until) == 0 {
		return nil
	}
	_, err := s.client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.HSet(ctx, s.key.Told(), map[string]string(until))
		if last := until[EndDone]; last != "" {
			pipe.XTrimMinID(ctx, s.key.Done(), last)
		}
		return nil
	})
	return err
}
