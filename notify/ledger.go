package notify

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
)

// A ledger remembers what became of the devices of a job's user in earlier attempts: which of them need no attempt any
// more, when each of the others has its next one, and whether the job has taken its place in the user's window. It is a
// hash in Redis, for jobs with several devices only, of
//
//	3 → has            the device with this number has the message or a newer one, or is gone
//	3 → refused        it refused the message
//	3 → failed 2 AT    it has failed twice; the next attempt is not before that instant, in µs
//	seen → 1           the user has seen, or may have seen, the message
//
// The hash is named after the job's ID and its offer, since an ID may be used again. What a
// dead job has delivered is kept under the ID alone for as long as the ID is known, so
// that [queue.Inspector.Revive] goes on with the other devices.
type ledger struct {
	rdb redis.UniversalClient // nil remembers nothing
}

const (
	ledgerLife = 7 * 24 * time.Hour // after the last attempt
	ledgerRest = 10 * time.Minute   // after the job's end: should its worker die before it is known
	idLife     = 24 * time.Hour     // how long an ID is known after its offer
)

// The fields and values of a ledger.
const (
	seenField    = "seen"
	hasValue     = "has"
	refusedValue = "refused"
)

// settled is what a ledger knows of a job.
type settled struct {
	devices map[int]fate     // delivered or rejected
	failed  map[int]failures // of devices that need another attempt
	seen    bool
	revived bool // some of it is of the job's life before it died
}

// failures are the attempts at a device that have failed.
type failures struct {
	n   int
	due time.Time // of the next one, by Redis's clock
}

func (f failures) String() string { return fmt.Sprintf("failed %d %d", f.n, f.due.UnixMicro()) }

func ledgerKey(job queue.Info) string {
	return deadLedgerKey(job) + ":" + strconv.FormatInt(job.Offered.UnixMicro(), 10)
}

// deadLedgerKey names a job by its tenant, too: jobs of tenants in different partitions may have one ID. The length of the first name tells
// the two apart.
func deadLedgerKey(job queue.Info) string {
	return fmt.Sprintf("wc:{%s}:notify:job:%d:%s:%s", job.Queue, len(job.Tenant), job.Tenant, job.ID)
}

// keeps reports whether the ledger remembers anything of a job.
func (l ledger) keeps(job queue.Info) bool { return l.rdb != nil && job.ID != "" }

// read returns what is known, device by device, by their number in the message.
func (l ledger) read(ctx context.Context, job queue.Info) (settled, error) {
	s := settled{devices: make(map[int]fate), failed: make(map[int]failures)}
	if !l.keeps(job) {
		return s, nil
	}
	pipe := l.rdb.Pipeline()
	now, before := pipe.HGetAll(ctx, ledgerKey(job)), pipe.HGetAll(ctx, deadLedgerKey(job))
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return s, fmt.Errorf("notify: reading which devices have the message: %w", err)
	}
	s.revived = len(before.Val()) > 0
	s.take(now.Val())
	s.take(before.Val())
	return s, nil
}

// take takes in the fields of a ledger. What is not written by this package is left out.
func (s *settled) take(fields map[string]string) {
	for field, value := range fields {
		device, err := strconv.Atoi(field)
		switch {
		case field == seenField:
			s.seen = true
		case err != nil:
		case value == hasValue:
			s.devices[device] = delivered
		case value == refusedValue:
			s.devices[device] = rejected
		default:
			var f failures
			var due int64
			if n, _ := fmt.Sscanf(value, "failed %d %d", &f.n, &due); n == 2 {
				f.due = time.UnixMicro(due)
				s.failed[device] = f
			}
		}
	}
}

// note writes down what became of a device in this attempt.
func (l ledger) note(ctx context.Context, job queue.Info, device int, r result) error {
	var fields []any
	switch r.fate {
	case delivered, unregistered, replaced:
		fields = append(fields, device, hasValue)
	case rejected:
		fields = append(fields, device, refusedValue)
	}
	if r.saw {
		fields = append(fields, seenField, 1)
	}
	return l.set(ctx, job, fields)
}

// plan writes down when devices that have failed have their next attempts.
func (l ledger) plan(ctx context.Context, job queue.Info, failed map[int]failures) error {
	var fields []any
	for device, f := range failed {
		fields = append(fields, device, f.String())
	}
	return l.set(ctx, job, fields)
}

func (l ledger) set(ctx context.Context, job queue.Info, fields []any) error {
	if !l.keeps(job) || len(fields) == 0 {
		return nil
	}
	return l.write(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		pipe.HSet(ctx, ledgerKey(job), fields...)
		pipe.Expire(ctx, ledgerKey(job), ledgerLife)
	})
}

// end lets go of what is known of a job that has come to its end.
func (l ledger) end(ctx context.Context, job queue.Info) error {
	if !l.keeps(job) {
		return nil
	}
	return l.write(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		pipe.Expire(ctx, ledgerKey(job), ledgerRest)
		pipe.Expire(ctx, deadLedgerKey(job), ledgerRest)
	})
}

// bury keeps which devices have the message of a job that dies, should it be revived.
// Devices that refused it are tried again then.
func (l ledger) bury(ctx context.Context, job queue.Info, s settled) error {
	var fields []any
	for device, f := range s.devices {
		if f != rejected {
			fields = append(fields, device, hasValue)
		}
	}
	if !l.keeps(job) || len(fields) == 0 {
		return nil
	}
	return l.write(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		pipe.HSet(ctx, deadLedgerKey(job), fields...)
		if !s.revived { // a second life ends with the first one's ID
			pipe.ExpireAt(ctx, deadLedgerKey(job), job.Offered.Add(idLife))
		}
		pipe.Expire(ctx, ledgerKey(job), ledgerRest)
	})
}

// write writes even if the attempt is over meanwhile: what a provider has accepted is
// noted.
func (l ledger) write(ctx context.Context, commands func(ctx context.Context, pipe redis.Pipeliner)) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	pipe := l.rdb.Pipeline()
	commands(ctx, pipe)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("notify: noting which devices have the message: %w", err)
	}
	return nil
}
