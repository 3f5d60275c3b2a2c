package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue"
)

// A start is a job whose handler was started, and by which worker.
type start struct {
	queue.Info
	worker       int
	began, ended time.Time // on this machine's clock
	unseen       bool      // the user saw nothing new of it: the slot was given back
}

// deferred tells whether the job had to wait for its slot. A few milliseconds are the
// way through Redis.
func (s start) deferred() bool { return s.Slot.Sub(s.Offered) > 20*time.Millisecond }

// A journal is the log of all starts: what the verdict is about.
type journal struct {
	mu     sync.Mutex
	starts []start
}

// handler is what a worker runs for every job, at its slot: it writes down the start and
// lets `deliver` send the notification. `seen` tells whether that brought the user one.
func (j *journal) handler(worker int, deliver asynq.Handler, seen func(queue.Info) bool) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		info, ok := queue.FromContext(ctx)
		if !ok {
			return errors.New("not run by a worker")
		}
		number := j.add(start{Info: info, worker: worker, began: time.Now()})
		err := deliver.ProcessTask(ctx, t)
		j.end(number, !seen(info))
		return err
	})
}

func (j *journal) add(s start) (number int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.starts = append(j.starts, s)
	return len(j.starts) - 1
}

func (j *journal) end(number int, unseen bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.starts[number].ended, j.starts[number].unseen = time.Now(), unseen
}

// all returns the starts so far, in order of time.
func (j *journal) all() []start {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.SortedFunc(slices.Values(j.starts), func(a, b start) int { return a.Started.Compare(b.Started) })
}

// A tally counts the starts of one school.
type tally struct{ atOnce, deferred int }

func (j *journal) tallies() map[string]tally {
	j.mu.Lock()
	defer j.mu.Unlock()
	counts := make(map[string]tally)
	for _, s := range j.starts {
		c := counts[s.Tenant]
		if s.deferred() {
			c.deferred++
		} else {
			c.atOnce++
		}
		counts[s.Tenant] = c
	}
	return counts
}

// forge adds a start that never was: a job of the busy teacher, a blink after another.
func (j *journal) forge() {
	for _, s := range j.all() {
		if s.Tenant == busySchool && s.User == busyTeacher && !s.unseen {
			s.Started = s.Started.Add(time.Millisecond)
			j.add(s)
			return
		}
	}
}

// offers remember what was offered through which door.
type offers struct {
	mu   sync.Mutex
	ids  []string
	door map[string]int // how many jobs came through each

	asleep int // of how many the receipt said that they wait for a morning
}

func (o *offers) add(door string, receipts []queue.Receipt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.door == nil {
		o.door = make(map[string]int)
	}
	o.door[door] += len(receipts)
	for _, r := range receipts {
		o.ids = append(o.ids, r.ID)
		if time.Until(r.Start) > longer {
			o.asleep++
		}
	}
}

// total returns how many jobs were offered, and how many of them wait for a morning.
func (o *offers) total() (all, asleep int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.ids), o.asleep
}
