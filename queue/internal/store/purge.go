package store

import (
	"context"
	"errors"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A purge removes jobs in steps of some hundred, each of them one change: Redis has others to serve in between. Jobs
// that are offered meanwhile may stay. Each job is removed under the condition that it is still in its lane, by its
// whole text: one that has started since, or was replaced, is left alone, and not counted. After each step a notice
// lets the leader read the tenant's lanes again; commits that took one of the removed jobs are refused, since their
// lanes do not begin so any more.

// priorities are the ranks of a tenant's lanes, in the order in which they are served.
var priorities = [...]int{envelope.High, envelope.Normal, envelope.Low}

// Purge drops up to n jobs that wait in a tenant's lanes. It returns how many, and
// whether nothing was left. The caller calls it again until nothing is: a step that has dropped no job may have taken
// empty lanes out of their indexes. In the past of jobs with IDs it notes who has purged them, after the change. It takes some ten
// round trips.
func (s *Store) Purge(ctx context.Context, tenant string, n int, by Note) (purged int, empty bool, err error) {
	view, err := s.Look(ctx, nil)
	if err != nil {
		return 0, false, err
	}
	lanes, err := s.lanesOf(ctx, tenant, n)
	if err != nil || len(lanes) == 0 {
		return 0, true, err
	}
	entries, err := s.firstOf(ctx, lanes, n)
	if err != nil {
		return 0, false, err
	}
	c := s.newChange()
	c.tell(NoticeTenant, Escape(tenant))
	for _, entry := range entries {
		s.purge(c, entry, view.Now)
	}
	for _, lane := range lanes {
		c.when(0, "EXISTS", []string{s.key.Lane(lane)})
		c.do("ZREM", s.key.Due(lane.Tenant, lane.Priority), lane.Member())
	}
	var indexes []string
	for _, priority := range priorities {
		indexes = append(indexes, s.key.Due(tenant, priority))
	}
	c.when(0, "EXISTS", indexes)
	c.do("ZREM", c.own(s.key.Tenants(), "zset"), Escape(tenant))
	done, err := c.apply(ctx)
	var ids, spilled []string
	for i, entry := range entries {
		if !done[i] {
			continue
		}
		purged++
		head, ok := envelope.Head(entry.Job)
		if !ok {
			continue
		}
		for _, part := range head.Parts() {
			ids, spilled = appendOwn(ids, part.ID), appendOwn(spilled, part.Spilled)
		}
	}
	err = errors.Join(err, s.Dropped(ctx, ids, spilled))
	var notes []PastNote
	for _, id := range ids {
		notes = append(notes, DroppedNote(id, view.Now, "purged", ""), AskedNote(id, view.Now, by))
	}
	if len(notes) > 0 {
		err = errors.Join(err, s.NotePast(ctx, notes, IDMemory))
	}
	return purged, len(entries)+len(done) == 0, err
}

// purge adds the step that takes one entry out of its lane, unless the entry has left the lane, or the job was replaced
// under its collapse key. The last condition is the removal itself: it finds the entry wherever in the lane it
// stands.
func (s *Store) purge(c *change, entry Entry, now int64) {
	lane, fold := s.key.Lane(entry.Lane), s.key.Fold(entry.Lane.Tenant, entry.Lane.User)
	c.always()
	job, _ := envelope.Head(entry.Job)
	switch {
	case entry.Folded() && job != nil && job.Record() != "":
		digest, _, _ := s.digest(Folded{entry.Tenant, entry.User, entry.Text[1:]})
		c.and(job.Record(), "HGET", []string{digest}, "")
		c.and(1+len(job.Members), "HLEN", []string{digest})
		c.do("DEL", digest)
	case entry.Folded():
		c.and(entry.Job, "HGET", []string{fold}, entry.Text[1:])
		c.do("HDEL", fold, entry.Text[1:])
	}
	c.and(1, "LREM", []string{lane}, 1, entry.Text)
	c.count(entry.Lane.Tenant, "dropped", 1)
	c.wait(entry.Lane, -1)
	switch {
	case entry.Job == "":
	case job == nil || len(job.Members) == 0:
		c.record(entry.Lane, "purged", entry.Job, now)
	default:
		c.count(entry.Lane.Tenant, "out", len(job.Members)-1)
		for _, m := range job.Members {
			c.record(entry.Lane, "purged", m.String(), now)
		}
	}
}

// appendOwn adds a name, if there is one.
func appendOwn(all []string, one string) []string {
	if one == "" {
		return all
	}
	return append(all, one)
}

// lanesOf returns up to n lanes of a tenant, those of the highest priority first.
func (s *Store) lanesOf(ctx context.Context, tenant string, n int) ([]Lane, error) {
	var lanes []Lane
	for _, priority := range priorities {
		members, err := s.client.ZRange(ctx, s.key.Due(tenant, priority), 0, int64(n-1)).Result()
		if err != nil && !wrongType(err) { // that index names nothing
			return nil, err
		}
		for _, member := range members {
			lanes = append(lanes, namedLane(tenant, priority, member))
		}
	}
	return lanes[:min(n, len(lanes))], nil
}

// firstOf returns the first n entries of the lanes, one lane after the other: n in all.
func (s *Store) firstOf(ctx context.Context, lanes []Lane, n int) ([]Entry, error) {
	lengths, err := s.Lengths(ctx, lanes)
	if err != nil {
		return nil, err
	}
	var pages []Page
	for i, lane := range lanes {
		if take := min(n, int(lengths[i])); take > 0 {
			pages = append(pages, Page{lane, 0, take})
			n -= take
		}
	}
	return s.Entries(ctx, pages)
}
