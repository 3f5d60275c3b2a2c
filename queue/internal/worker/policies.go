package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A Redis that fails over to a replica may lose its newest writes, policies among them: it then holds older ones, or
// none. Lost rules are never taken for the absence of rules:
//
//  1. Every worker remembers the highest version that was in force, and the source if it has read it.
//  2. A leader that finds an older version in Redis puts the newest one in force again, if it knows the source.
//  3. Otherwise nothing starts, and the log says so, until somebody sets policies.

// Policies are the newest policies that a worker knows. Redis may lose them with its newest writes:
// then whoever leads puts them in force again.
type Policies struct {
	mu       sync.Mutex
	seen     int64 // the highest version that was in force
	version  int64 // that of the source
	source   string
	compiled *schedule.Policies // nil if the source was not compiled yet
}

// A compiler returns policies of a version as they hold at an instant.
type compiler = func(source string, version, now int64) (*schedule.Policies, error)

var errPoliciesGone = errors.New("queue: the policies are gone from Redis; nothing starts until they are set again")

// Saw notes that policies of a version are in force, and reports whether their source is unknown.
func (p *Policies) Saw(version int64) (unknown bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = max(p.seen, version)
	return p.version < p.seen
}

// learn takes in what Redis holds, unless what is known is newer. Of the same version with another source Redis's
// counts.
func (p *Policies) learn(source string, version int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = max(p.seen, version)
	if version > p.version || version == p.version && source != p.source {
		p.source, p.version, p.compiled = source, version, nil
	}
}

// lost returns the source to put in force again where Redis holds an older version than was in
// force. It fails where that source is unknown.
func (p *Policies) lost(version int64) (source string, lost bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case version >= p.seen:
		return "", false, nil
	case version == 0:
		return "", false, errPoliciesGone
	case p.version < p.seen:
		return "", false, fmt.Errorf("queue: Redis holds version %d of the policies, and version %d was in force: "+
			"nothing starts until they are set again", version, p.seen)
	}
	return p.source, true, nil
}

// compile returns the newest policies as they hold at an instant, compiled once for as long as they do; nil if there are
// none. The same policies are the same pointer: by that the scheduler sees whether they have changed.
func (p *Policies) compile(how compiler, now int64) (*schedule.Policies, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.version == 0 || p.compiled != nil && p.compiled.HoldAt(now) {
		return p.compiled, nil
	}
	compiled, err := how(p.source, p.version, now)
	if err != nil {
		return nil, fmt.Errorf("reading the policies in Redis: %w", err)
	}
	p.compiled = compiled
	return compiled, nil
}

// readPolicies reads policies that are new, as a beat says: so that a worker that does not lead can put them in force
// again when it does.
func (w *Worker) readPolicies(ctx context.Context) {
	if source, version, err := w.Store.Policies(ctx); err == nil {
		w.Policies.learn(source, version)
	}
}

// InForce returns the policies in force, where Redis holds some source. Where it has lost the newest and holds older
// ones, InForce puts the newest in force again: the next commit is refused, and reads their new version.
func (w *Worker) InForce(ctx context.Context, source string, version int64) (*schedule.Policies, error) {
	w.Policies.learn(source, version)
	newest, lost, err := w.Policies.lost(version)
	if err != nil {
		return nil, err
	}
	if lost {
		p, err := w.Policies.compile(w.cfg.Policies, w.Now())
		if err != nil {
			return nil, err
		}
		w.Log.Warn("Redis has lost the newest policies; they are put in force again", "version", strconv.FormatInt(p.Version, 10))
		_, err = w.Store.SetPolicies(ctx, store.NewPolicies{
			Source: newest, Expected: version,
			Note: store.Note{Author: w.Name, Reason: "Redis had lost them"},
		})
		if err != nil && !errors.Is(err, store.ErrPoliciesChanged) {
			return nil, err
		}
	}
	return w.Policies.compile(w.cfg.Policies, w.Now())
}

// named returns the limits by name that count a job, by the newest policies that this worker knows. They may be a beat
// older than those by which the job was started.
func (w *Worker) named(j *job) []schedule.Use {
	p, err := w.Policies.compile(w.cfg.Policies, w.Now())
	if err != nil || p == nil || p.Named == nil {
		return nil
	}
	uses, _, _ := p.Named.Job(nil, j.Claim.Lane, j.env)
	return uses
}

// countedAlike reports whether limits count two jobs of a lane in the same way.
func (w *Worker) countedAlike(lane envelope.Lane, a, b *envelope.Envelope) bool {
	p, err := w.Policies.compile(w.cfg.Policies, w.Now())
	if err != nil {
		return false
	}
	ofA, labelA, _ := p.Job(lane, a)
	ofB, labelB, _ := p.Job(lane, b)
	return labelA == labelB && slices.EqualFunc(ofA, ofB, func(a, b schedule.Use) bool {
		return a.Limit.Scope == b.Limit.Scope && a.Cost == b.Cost
	})
}
