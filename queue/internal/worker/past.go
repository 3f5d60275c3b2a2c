package worker

import (
	"context"
	"sync"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A past gathers notes of what becomes of jobs with the callers' own IDs, and writes them ten times a second: nothing waits for
// them. While Redis takes none, the newest are kept, mostNotes of them.
type past struct {
	w     *Worker
	ready chan struct{}

	mu    sync.Mutex
	notes []store.PastNote
}

const (
	mostNotes  = 50_000
	notesEvery = 100 * time.Millisecond
	notesBatch = 1000
)

func newPast(w *Worker) *past { return &past{w: w, ready: make(chan struct{}, 1)} }

func (p *past) add(n store.PastNote) {
	if p.w.cfg.History <= 0 {
		return
	}
	p.mu.Lock()
	if p.notes = append(p.notes, n); len(p.notes) > mostNotes {
		p.notes = p.notes[len(p.notes)-mostNotes:]
	}
	p.mu.Unlock()
	retry.Signal(p.ready)
}

// Claimed notes what a job has waited for until its slot, when it has been claimed, and tells who listens. Under a
// collapse key it may be another job by now: of that nothing is known.
func (w *Worker) Claimed(s *schedule.Start) {
	if _, folded := s.Head.Collapse(); folded {
		return
	}
	w.Past.claimed(s)
	if w.cfg.Claimed != nil {
		w.cfg.Claimed(s)
	}
}

func (p *past) claimed(s *schedule.Start) {
	e := s.Head.Env
	for _, part := range e.Parts() {
		if part.ID == "" {
			continue
		}
		p.add(store.ClaimedNote(part.ID, max(part.Offered(), e.Revived), max(part.Begin(), e.Begin()), store.PastAttempt{
			Number: e.Failures + 1, Ready: e.Since(), Slot: s.Slot, Rules: s.Wait.Rules, Pauses: s.Wait.Pauses,
			Concurrency: s.Wait.Concurrency, Places: s.Wait.Places, Rule: s.Wait.Blame.Rule,
		}))
	}
}

// Dropped notes that a job was dropped.
func (p *past) Dropped(e *envelope.Envelope, at int64, reason, rule string) {
	if e.ID != "" {
		p.add(store.DroppedNote(e.ID, at, reason, rule))
	}
}

// ended notes how an attempt has ended.
func (p *past) ended(j *job, outcome, text string) {
	now, _ := p.w.Clock.Now()
	for _, id := range j.env.IDs() {
		p.add(store.EndedNote(id, store.PastAttempt{
			Number: j.env.Failures + 1, Started: j.started, Ended: max(now, j.started), Outcome: outcome, Error: clip(text, shownError),
		}))
	}
}

// Write writes notes until ctx ends, and then what is left of them.
func (p *past) Write(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-p.ready:
			retry.Pause(ctx, notesEvery)
		}
		if err := p.write(ctx); err != nil {
			retry.Pause(ctx, time.Second)
			retry.Signal(p.ready)
		}
	}
}

// write writes what there is. What cannot be written is kept.
func (p *past) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for {
		p.mu.Lock()
		n := min(notesBatch, len(p.notes))
		batch := p.notes[:n:n]
		p.notes = p.notes[n:]
		p.mu.Unlock()
		if n == 0 {
			return nil
		}
		if err := p.w.Store.NotePast(ctx, batch, p.w.cfg.History); err != nil {
			p.mu.Lock()
			p.notes = append(batch, p.notes...)
			p.mu.Unlock()
			return err
		}
	}
}
