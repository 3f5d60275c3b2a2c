package store

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The past of a job with the caller's own ID is kept for whoever asks later why it was late. It is told apart from all that
// decides: the leader notes what a job has waited for when it has claimed it, a worker how an attempt has ended, and whoever cancels or
// purges a job that. Each writes
// fields of its own, so the order does not matter, and a note that is written twice has no effect. A note that is lost with its
// writer is missing.

// pastAttempts is how many attempts of a job have notes of their own: those after them share the last one.
const pastAttempts = 20

// A PastNote is one note of a job's past.
type PastNote struct{ ID, field, text string }

// A Past is what is known of the attempts of a job, in their order.
type Past struct {
	Offered  int64 // when it was offered, or revived; 0 if that is not known
	Begin    int64 // from when on it was to start
	Attempts []PastAttempt

	Dropped int64 // when it was dropped; 0 if it was not
	Reason  string
	Rule    string

	Asked int64 // when somebody cancelled or purged it; 0 if nobody did
	By    Note  // who, and why
}

// A PastAttempt is one attempt of a job. All instants are in µs, and 0 if they are not known.
type PastAttempt struct {
	Number                             int
	Ready                              int64 // from when on it waited for its limits, and a place
	Slot                               int64
	Rules, Pauses, Concurrency, Places int64  // how long it waited for what, in µs
	Rule                               string // what held it back for longest
	Started, Ended                     int64
	Outcome                            string // of an attempt that has ended: done, failed, dead, paused, interrupted
	Error                              string
}

// ClaimedNote notes that an attempt was claimed. Each instant but the first is written as the time since the one before.
func ClaimedNote(id string, offered, begin int64, a PastAttempt) PastNote {
	return PastNote{id, field(a.Number, "c"), words(offered, begin-offered, a.Ready-begin, a.Slot-a.Ready, a.Rules, a.Pauses, a.Concurrency, a.Places) + " " + a.Rule}
}

// EndedNote notes how an attempt has ended.
func EndedNote(id string, a PastAttempt) PastNote {
	return PastNote{id, field(a.Number, "e"), words(a.Started, a.Ended-a.Started) + " " + a.Outcome + " " + a.Error}
}

// DroppedNote notes that a job was dropped.
func DroppedNote(id string, at int64, reason, rule string) PastNote {
	return PastNote{id, "d", words(at) + " " + reason + " " + rule}
}

// AskedNote notes who cancelled or purged a job, and why: the first 300 bytes of both, since a purge notes it for each job.
func AskedNote(id string, at int64, by Note) PastNote {
	clip := func(text string) string { return strings.ToValidUTF8(text[:min(300, len(text))], "") }
	return PastNote{id, "b", words(at) + " " + Pack(clip(by.Author), clip(by.Reason))}
}

func field(attempt int, what string) string { return strconv.Itoa(min(attempt, pastAttempts)) + what }

func words(numbers ...int64) string {
	var b []byte
	for i, n := range numbers {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return string(b)
}

// NotePast writes notes, in two round trips. They are known for so long, and no longer than the IDs of their jobs: of a job
// whose ID is not known any more nothing is written, nor into a key of another type. After an error all may be written again.
func (s *Store) NotePast(ctx context.Context, notes []PastNote, keep time.Duration) error {
	fields, known := make(map[string][]any), make(map[string]*redis.DurationCmd)
	for _, n := range notes {
		fields[n.ID] = append(fields[n.ID], n.field, n.text)
	}
	if _, err := s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for id := range fields {
			known[id] = pipe.PTTL(ctx, s.key.ID(id))
		}
		return nil
	}); err != nil {
		return err
	}
	const gone, forever = -2, -1 // as Redis says it; an ID that was cancelled has no time
	written, err := s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for id, of := range fields {
			left := known[id].Val()
			if left == gone {
				continue
			}
			if left == forever || left > keep {
				left = keep
			}
			pipe.HSet(ctx, s.key.Past(id), of...)
			pipe.PExpire(ctx, s.key.Past(id), left)
		}
		return nil
	})
	if err == nil {
		return nil
	}
	for _, cmd := range written {
		if err := cmd.Err(); err != nil && !wrongType(err) {
			return err
		}
	}
	return nil
}

// Past returns what is known of a job's attempts: of the newest job with the ID, if there were several, and since it was revived.
func (s *Store) Past(ctx context.Context, id string) (Past, error) {
	fields, err := s.client.HGetAll(ctx, s.key.Past(id)).Result()
	if err != nil && !wrongType(err) { // a key of another type holds no past: doctor finds it
		return Past{}, err
	}
	var p Past
	for number := 1; number <= pastAttempts; number++ {
		if claimed, _ := numbers(fields[field(number, "c")], 8); claimed != nil && claimed[0] > p.Offered {
			p.Offered, p.Begin = claimed[0], claimed[0]+claimed[1]
		}
	}
	if n, rest := numbers(fields["d"], 1); n != nil && n[0] >= p.Offered {
		reason, rule, _ := strings.Cut(rest, " ")
		p.Dropped, p.Reason, p.Rule = n[0], reason, rule
	}
	if n, rest := numbers(fields["b"], 1); n != nil && n[0] >= p.Offered {
		if by := Words(rest); len(by) == 2 {
			p.Asked, p.By = n[0], Note{by[0], by[1]}
		}
	}
	for number := 1; number <= pastAttempts; number++ {
		a := PastAttempt{Number: number}
		claimed, rule := numbers(fields[field(number, "c")], 8)
		if claimed != nil && claimed[0] < p.Offered {
			continue // of a job before
		}
		if claimed != nil {
			a.Ready = p.Begin + claimed[2]
			a.Slot = a.Ready + claimed[3]
			a.Rules, a.Pauses, a.Concurrency, a.Places, a.Rule = claimed[4], claimed[5], claimed[6], claimed[7], rule
		}
		ended, how := numbers(fields[field(number, "e")], 2)
		since := a.Slot // what began before is of a time before: the attempt was claimed again
		if claimed == nil {
			since = p.Offered
		}
		if ended != nil && ended[0] < since {
			ended = nil
		}
		if ended != nil {
			a.Started, a.Ended = ended[0], ended[0]+ended[1]
			a.Outcome, a.Error, _ = strings.Cut(how, " ")
		}
		if claimed != nil || ended != nil {
			p.Attempts = append(p.Attempts, a)
		}
	}
	return p, nil
}

// numbers returns the first n words of a note, and what follows them; nil if it is malformed, or not there.
func numbers(text string, n int) (all []int64, rest string) {
	for range n {
		word, tail, found := strings.Cut(text, " ")
		number, err := strconv.ParseInt(word, 10, 64)
		if err != nil || !found {
			return nil, ""
		}
		all, text = append(all, number), tail
	}
	return all, text
}
