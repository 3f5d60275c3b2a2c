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

// A ledger remembers which devices of a job's user need no attempt any more, so that a
// retry goes only to the others, and whether the job has taken its place in the user's
// window. It is a set in Redis, for jobs with several devices only, of
//
//	3      the device with this number has the message or a newer one, or is gone
//	x3     it refused the message
//	seen   the user has seen, or may have seen, the message
//
// The set is named after the job's ID and its offer, since an ID may be used again. What a
// dead job has delivered is kept under the ID alone for as long as the ID is known, so
// that [queue.Inspector.Revive] goes on with the other devices.
type ledger struct {
	rdb redis.UniversalClient // nil remembers nothing
}

const (
	ledgerLife = 7 * 24 * time.Hour // after the last attempt
	ledgerRest = 10 * time.Minute   // after the job's end: should its worker die before it is known
	idLife     = 24 * time.Hour     // how long an ID is known after its offer
	seen       = "seen"
)

// settled is what a ledger knows of a job.
type settled struct {
	devices map[int]fate // delivered or rejected
	seen    bool
	revived bool // some of it is of the job's life before it died
}

func ledgerKey(job queue.Info) string {
	return deadLedgerKey(job) + ":" + strconv.FormatInt(job.Offered.UnixMicro(), 10)
}

func deadLedgerKey(job queue.Info) string { return "wc:{" + job.Queue + "}:notify:job:" + job.ID }

// read returns what is settled, device by device, by their number in the message.
func (l ledger) read(ctx context.Context, job queue.Info) (settled, error) {
	s := settled{devices: make(map[int]fate)}
	if l.rdb == nil || job.ID == "" {
		return s, nil
	}
	pipe := l.rdb.Pipeline()
	now, before := pipe.SMembers(ctx, ledgerKey(job)), pipe.SMembers(ctx, deadLedgerKey(job))
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return s, fmt.Errorf("notify: reading which devices have the message: %w", err)
	}
	s.revived = len(before.Val()) > 0
	for _, member := range append(now.Val(), before.Val()...) {
		number, refused := member, false
		if member[:1] == "x" {
			number, refused = member[1:], true
		}
		device, err := strconv.Atoi(number)
		switch {
		case member == seen:
			s.seen = true
		case err == nil && refused:
			s.devices[device] = rejected
		case err == nil:
			s.devices[device] = delivered
		}
	}
	return s, nil
}

// note writes down what became of a device in this attempt.
func (l ledger) note(ctx context.Context, job queue.Info, device int, r result) error {
	var members []any
	switch r.fate {
	case delivered, unregistered, replaced:
		members = append(members, strconv.Itoa(device))
	case rejected:
		members = append(members, "x"+strconv.Itoa(device))
	}
	if r.saw {
		members = append(members, seen)
	}
	if l.rdb == nil || job.ID == "" || len(members) == 0 {
		return nil
	}
	return l.write(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		pipe.SAdd(ctx, ledgerKey(job), members...)
		pipe.Expire(ctx, ledgerKey(job), ledgerLife)
	})
}

// end lets go of what is known of a job that has come to its end.
func (l ledger) end(ctx context.Context, job queue.Info) error {
	if l.rdb == nil || job.ID == "" {
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
	members := make([]any, 0, len(s.devices))
	for device, f := range s.devices {
		if f != rejected {
			members = append(members, strconv.Itoa(device))
		}
	}
	if l.rdb == nil || job.ID == "" || len(members) == 0 {
		return nil
	}
	return l.write(ctx, func(ctx context.Context, pipe redis.Pipeliner) {
		pipe.SAdd(ctx, deadLedgerKey(job), members...)
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
