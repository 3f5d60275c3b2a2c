package schedule

import "github.com/waterclock/waterclock/queue/internal/envelope"

// The scheduler's picture of lanes is a front: those that are due soon, with their first jobs. What happens to lanes
// elsewhere (an offer to an empty lane, a purge, jobs that come back) is told, and what is known of them is read
// again. A lane keeps its place in line meanwhile, so that nobody gains or loses a turn by being looked at.
//
// A lane that is told of may be known already, may come with an index that is being read, or may lie behind the
// frontier up to which the index is known. In the last case nothing has to be done: it is found when its bound comes.
// The frontier is an instant, and the notice comes later than the offer that set the bound; noticeDelay allows for
// that.

// notice takes in that a lane has got its first job. If the scheduler neither knows the lane nor will
// find it in its index, it comes in with that job. There are these cases:
//
//  1. The lane is being read: what is read may be from before the job came. It is read once more if it is found empty.
//  2. The job's bound lies behind the frontier: the lane is found with the index.
//  3. The lane has first jobs: the notice is an old one, or one that was read twice.
//  4. The lane is in a heap without first jobs: it is read when it is due, which is now.
//  5. The job, or one that was offered after it, has left the lane, or the lane was read after the offer, or the job was
//     offered before this scheduler began: the job may have left before the notice was opened. The lane is read again.
//  6. Otherwise the lane comes in with the job.
func (s *Scheduler) notice(lane envelope.Lane, head Head, now int64) {
	t := s.tenant(lane.Tenant)
	index := &t.lanes[lane.Priority]
	if l := t.find(lane); l != nil && l.asked {
		l.missed = true
		return
	}
	if index.frontier <= now && head.Env != nil && head.Env.Offered()-noticeDelay > index.frontier {
		if index.asked {
			index.lower(head.Env.Offered() - noticeDelay)
		}
		s.rouse(t, now)
		return
	}
	l := t.user(s, lane.User).lane(lane.Priority, lane.Label)
	if len(l.heads) > 0 {
		return
	}
	if l.at != outside { // its bound is that of another job, or of a late start
		s.wake(l, now)
		return
	}
	if head.Env != nil && head.Env.Offered() < max(l.looked, s.begun) {
		s.read(l, now)
		s.rouse(t, now)
		return
	}
	at := now
	if head.Env != nil { // lanes that are told of together keep the order of their offers
		at = min(now, head.Env.Offered())
	}
	l.noted = at
	s.hold(l, append(l.heads, head))
	s.wake(l, at)
}

// noticeDelay is how much earlier than the stamp of its first job a lane's bound may be, in
// µs. A lane whose bound lies before the frontier is not found behind it.
const noticeDelay = 1_000_000

// look lets a lane be read again and looked at, and the other lanes of its user: their first jobs, or what
// bounds them, may have changed.
func (s *Scheduler) look(lane envelope.Lane, now int64) {
	t := s.tenant(lane.Tenant)
	u := t.user(s, lane.User)
	u.lane(lane.Priority, lane.Label)
	u.paused = s.paused[u.scope()]
	u.plain()
	u.held = nil
	for _, l := range u.lanes {
		s.readAgain(l, now)
	}
}

// readAgain lets the first jobs of a lane be read. It keeps its place in line, or comes
// in at an instant.
func (s *Scheduler) readAgain(l *lane, at int64) {
	t := l.user.tenant
	l.looked = max(l.looked, at)
	if t.holdsOrFinds(l, at) { // otherwise its index brings it, in its place in line
		s.read(l, min(at, l.bound()))
	}
	s.rouse(t, at)
}

// holdsOrFinds reports whether nothing is missing of what Redis knows of a lane: it is in memory, or would have been read
// if it were due by that instant.
func (t *tenant) holdsOrFinds(l *lane, at int64) bool {
	return l.at != outside || t.lanes[l.priority].frontier > at
}

// forgetLanes lets the indexes of a tenant be read again, and of each lane the first jobs. Lanes keep
// their places in line.
func (s *Scheduler) forgetLanes(tenant string, now int64) {
	t := s.tenant(tenant)
	for p := range t.lanes {
		for _, entry := range t.lanes[p].due.entries {
			s.hold(entry.item, nil)
		}
	}
	s.loosen(t, now)
}

// loosen lets all lanes of a tenant be looked at now, those that are not in memory included. They
// keep their order.
func (s *Scheduler) loosen(t *tenant, now int64) {
	for _, u := range t.users {
		u.held = nil
	}
	for p := range t.lanes {
		index := &t.lanes[p]
		index.lower(0)
		var later []*lane
		for _, of := range []*heap[*lane]{&index.due, &index.reading} {
			for _, e := range of.entries {
				if e.bound > now {
					later = append(later, e.item)
				}
			}
		}
		for _, l := range later {
			l.heap().set(l, now)
		}
	}
	s.rouse(t, now)
}
