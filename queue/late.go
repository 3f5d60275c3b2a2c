package queue

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A late is a job that missed its slot and asks Redis for another.
type late struct {
	token  string
	missed time.Time
	ahead  time.Duration // how far ahead the new slot is to lie

	answered chan struct{}
	outcome  int64
	slot     time.Time
	err      error
}

// The outcomes of asking; any other is that the job is in its lane again.
const (
	lateLost   = 0 // the claim is somebody else's
	lateStarts = 1 // at the new slot
)

// lates are the late jobs of a puller. Those that ask while a question is under way share
// the next one: a worker that is late is late with many.
type lates struct {
	scripts *scripts
	clock   *redisClock

	mu      sync.Mutex
	asking  bool
	waiting []*late
}

// ask asks for one job and returns when there is an answer, or an error.
func (l *lates) ask(ctx context.Context, job *late) error {
	job.answered = make(chan struct{})
	l.mu.Lock()
	l.waiting = append(l.waiting, job)
	first := !l.asking
	l.asking = true
	l.mu.Unlock()
	if first {
		go l.askAll(ctx)
	}
	<-job.answered
	return job.err
}

// askAll asks for all that wait, until none does.
func (l *lates) askAll(ctx context.Context) {
	for jobs := l.take(); jobs != nil; jobs = l.take() {
		err := l.admit(ctx, jobs)
		for _, job := range jobs {
			job.err = err
			close(job.answered)
		}
	}
}

func (l *lates) take() []*late {
	const batch = 100
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(batch, len(l.waiting))
	if n == 0 {
		l.asking = false
		return nil
	}
	jobs := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	return jobs
}

func (l *lates) admit(ctx context.Context, jobs []*late) error {
	slices.SortStableFunc(jobs, func(a, b *late) int { return a.missed.Compare(b.missed) })
	ahead, args := time.Duration(0), make([]any, 1, 1+2*len(jobs))
	for _, job := range jobs {
		ahead = max(ahead, job.ahead)
		args = append(args, job.token, micros(job.missed))
	}
	args[0] = ahead.Microseconds()
	asked := time.Now()
	reply, err := numbers(l.scripts.run(ctx, l.scripts.admit, args...), 1+2*len(jobs))
	if err != nil {
		return err
	}
	l.clock.observe(asked, time.Now(), time.UnixMicro(reply[0]))
	for i, job := range jobs {
		job.outcome, job.slot = reply[1+2*i], time.UnixMicro(reply[2+2*i])
	}
	return nil
}
