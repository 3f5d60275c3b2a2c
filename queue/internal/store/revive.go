package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A dead job that comes back is put at the end of its lane, like one that is offered: others may have started since,
// and its place in line is lost. Two things may stand in its way. Another job may wait under its collapse key: the
// revived one takes its place, and the other is dropped as collapsed. And its lane may hold something else: then it
// stays dead.
//
// One step of a change revives one job. Its last condition deletes the entry of the dead job: so of two who revive the
// same job one does it, and a job is among the dead or in its lane, and not in both.

// Revive puts dead jobs, named by their entries, back at the ends of their lanes with all
// their attempts. It returns how many it has put back; an entry that is not there any more is passed over. A job that
// cannot be read stays where it is, and the error says so. It takes some four round trips, and as many again for the
// second of several jobs with the same collapse key.
func (s *Store) Revive(ctx context.Context, entries []string) (int, error) {
	revived, errs := 0, []error(nil)
	for len(entries) > 0 {
		dead, err := s.deadEntries(ctx, entries)
		if err != nil {
			return revived, err
		}
		n, left, err := s.revive(ctx, dead)
		revived, entries, errs = revived+n, left, append(errs, err)
	}
	return revived, errors.Join(errs...)
}

// deadEntries returns those of the dead jobs that are there, each once, in one round trip.
func (s *Store) deadEntries(ctx context.Context, entries []string) ([]Record, error) {
	found, err := each(ctx, s, entries, func(pipe redis.Pipeliner, entry string) *redis.XMessageSliceCmd {
		return pipe.XRange(ctx, s.key.Dead(), entry, entry)
	})
	if err = errors.Join(err, brokenOf("stream", found...)); err != nil {
		return nil, err
	}
	var dead []Record
	seen := make(map[string]bool)
	for _, message := range slices.Concat(values(found)...) {
		if !seen[message.ID] {
			seen[message.ID] = true
			dead = append(dead, recordOf(message))
		}
	}
	return dead, nil
}

// A revival is a dead job as it is to wait again.
type revival struct {
	Record
	job     *envelope.Envelope // as it is to wait
	waiting string             // the job that waits under its collapse key; "" for none
}

// revive puts back as many of the jobs as one change can. It returns the entries that are
// left for another try: the second job with the same collapse key, and one whose place was taken meanwhile. After
// an error none are: the same would happen again.
func (s *Store) revive(ctx context.Context, dead []Record) (n int, left []string, err error) {
	view, err := s.Look(ctx, nil)
	if err != nil {
		return 0, nil, err
	}
	revivals, left, unread := s.revivals(ctx, dead)
	if len(revivals) == 0 {
		return 0, left, unread
	}
	c := s.newChange()
	for _, r := range revivals {
		r.job.Failures, r.job.Lost, r.job.Ready, r.job.Revived, r.job.Error, r.job.SentOn = 0, 0, 0, view.Now, "", false
		r.job.Late, r.job.Slot = 0, 0
		if waiting, ok := envelope.Head(r.waiting); ok { // it takes that one's place
			r.job.Slot = waiting.Slot
		}
		s.enter(c, r, view.Now)
	}
	done, err := c.apply(ctx)
	var ids, spilled []string
	for i, r := range revivals {
		head, replaced := envelope.Head(r.waiting)
		switch {
		case !done[i]:
			left = append(left, r.Entry)
		case replaced:
			ids, spilled = appendOwn(ids, head.ID), appendOwn(spilled, head.Spilled)
		}
	}
	if err != nil {
		left = nil // it would go on for ever
	}
	return len(done), left, errors.Join(unread, err, s.Dropped(ctx, ids, spilled))
}

// revivals reads the jobs, and what waits in their places. Those that cannot be read are part of the error.
func (s *Store) revivals(ctx context.Context, dead []Record) (all []revival, left []string, err error) {
	var folded []Folded
	seen := make(map[Folded]bool)
	for _, record := range dead {
		job, bad := envelope.Open(record.Job)
		if job == nil {
			err = errors.Join(err, fmt.Errorf("dead job %s: %w", record.Entry, bad))
			continue
		}
		fold := Folded{record.Lane.Tenant, record.Lane.User, envelope.FoldName(job.CollapseKey)}
		if seen[fold] {
			left = append(left, record.Entry)
			continue
		}
		seen[fold] = fold.Key != ""
		folded, all = append(folded, fold), append(all, revival{record, job, ""})
	}
	waiting, failed := s.FoldedJobs(ctx, folded)
	if failed != nil {
		return nil, nil, errors.Join(err, failed)
	}
	for i := range all {
		all[i].waiting = waiting[i]
	}
	return all, left, err
}

// enter adds the step that puts a job at the end of its lane, or into the place of the one that waits under
// its collapse key. That has to be the job that was read: it is the condition, "" for none.
func (s *Store) enter(c *change, r revival, now int64) {
	lane, key, job := r.Lane, envelope.FoldName(r.job.CollapseKey), r.job.String()
	fold := s.key.Fold(lane.Tenant, lane.User)
	c.tell(NoticeTenant, Escape(lane.Tenant))
	c.always()
	if key != "" {
		c.and(r.waiting, "HGET", []string{fold}, key)
	}
	c.and(1, "XDEL", []string{s.key.Dead()}, r.Entry)
	entry := job
	if key != "" {
		c.must("HSET", fold, key, job)
		entry = "=" + key
	}
	if r.waiting == "" {
		c.must("RPUSH", s.key.Lane(lane), entry)
		c.must("ZADD", s.key.Due(lane.Tenant, lane.Priority), "LT", now, lane.Member())
		c.must("ZADD", c.own(s.key.Tenants(), "zset"), "LT", now, Escape(lane.Tenant))
		c.wait(lane, 1)
	}
	c.count(lane.Tenant, "back", 1)
	for _, id := range r.job.IDs() {
		c.do("SET", s.key.ID(id), lane.Name(), "XX", "KEEPTTL")
	}
	if r.waiting != "" {
		c.record(lane, "collapsed", r.waiting, now)
		c.count(lane.Tenant, "dropped", 1)
	}
}

// DeleteDead forgets dead jobs, and their payloads that are kept apart. It returns how many it
// has deleted: one that was revived meanwhile is not counted. It takes two round trips.
func (s *Store) DeleteDead(ctx context.Context, entries []string) (int, error) {
	dead, err := s.deadEntries(ctx, entries)
	if err != nil || len(dead) == 0 {
		return 0, err
	}
	c := s.newChange()
	for _, record := range dead {
		c.when(1, "XDEL", []string{s.key.Dead()}, record.Entry) // or it was revived meanwhile
		job, ok := envelope.Head(record.Job)
		if !ok {
			continue
		}
		for _, part := range job.Parts() {
			if part.Spilled != "" {
				c.do("UNLINK", s.key.Body(part.Spilled))
			}
		}
	}
	done, err := c.apply(ctx)
	return len(done), err
}
