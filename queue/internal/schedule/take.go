package schedule

import (
	"cmp"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// take takes the first job of a lane for a place: all rules are spent, the job counts as running, its tenant as served,
// and the lane goes behind the others that are due. The returned start is the last of the plan, and valid until the
// next.
func (d *decision) take(l *lane, at, slot int64, place *Place) *Start {
	s, u, h := d.s, l.user, l.heads[0]
	t, spent := u.tenant, slot+place.Spread
	lane, by := l.name(), counted{}
	if len(d.of) > commonLimits {
		by = l.counted
	}
	lane.Label = by.label // the lane's own may be that of other policies
	start := Start{Claim: envelope.Claim{Stamp: h.Env.Stamp, Lane: lane, Slot: slot, Spent: spent}, Head: h, Worker: place.Worker}
	start.Objection = d.spend(rules.Spent{Slot: slot, Latest: spent})
	start.counted = s.claimed(u, envelope.ClaimRef{Worker: start.Worker, Claim: start.Claim}, by.instances)
	start.Limits = by.limits
	for _, who := range d.of {
		start.Awaited = start.Awaited || s.crowded(who.of)
	}
	d.plan.Starts = append(d.plan.Starts, start)
	s.share = max(s.share, s.turnOf(l))
	s.serve(t, h.Env.Cost)
	first := l.first()
	next, _ := u.rules.Earliest(&u.state, max(at, l.bound()), 1)
	s.freeRoom(l, d.now) // while those behind it are known by its turn
	l.takeTurn()
	l.index().due.set(l, next)
	l.last = slot
	d.leave(l, first)
	return &d.plan.Starts[len(d.plan.Starts)-1]
}

// turnOf returns the share of the tenant whose turn it was when a lane was called: its own, or that of a tenant which was passed over.
func (s *Scheduler) turnOf(l *lane) int64 {
	turn := l.user.tenant.share
	for _, i := range l.holds {
		if first := i.first(); i.shared != nil && first != nil {
			turn = min(turn, first.user.tenant.share)
		}
	}
	return turn
}

// shareOfOne is what a job of cost 1 adds to the share of a tenant of weight 1.
const shareOfOne = 1 << 20

// serve adds a job of that cost to the share of a tenant; below 0 it takes one off.
func (s *Scheduler) serve(t *tenant, cost int) {
	t.share += int64(cost) * shareOfOne / int64(max(1, t.policy.Weight))
	if t.rank != outside {
		s.ready.set(t, t.share)
	}
}

// spend takes a slot from all rules. Shadow rules have a world of their own: they are
// spent only if all of them would have let the job start. It returns the name of one that
// would not have. Those of shared limits were spent with the grant.
func (d *decision) spend(t rules.Spent) (objection string) {
	for _, who := range d.of {
		objection = cmp.Or(objection, who.of.state.Objection(t.Slot, who.cost))
		if objection == "" && who.of.rules.Shadows() {
			if i := who.of.rules.Objecting(&who.of.state, t.Slot, who.cost); i >= 0 {
				objection = who.ruleName(i)
			}
		}
	}
	for _, who := range d.of {
		known := !who.of.state.Empty() // rules that were lifted must know what they have not counted
		if who.of.rules.Spend(&who.of.state, t, who.cost, objection == ""); known || !who.of.state.Empty() {
			d.s.touch(who.who)
		}
	}
	return objection
}

// first returns the first job of a lane as one that leaves it, with what Undo needs to give the lane its place in line
// back.
func (l *lane) first() Left {
	bound := l.bound()
	if l.line != nil {
		bound = l.since
	}
	return Left{l.name(), l.heads[0].Begin(), bound, l.last, l.served}
}

// leave takes the first job out of a lane. The next one has the lane's bound.
func (d *decision) leave(l *lane, first Left) {
	d.plan.Left = append(d.plan.Left, first)
	d.left--
	if env := l.heads[0].Env; env != nil {
		l.looked = max(l.looked, env.Offered()+1)
	}
	d.s.quit(l, d.now)
	d.s.hold(l, l.heads[1:])
	if len(l.heads) == 0 {
		d.s.read(l, l.bound())
	} else {
		d.s.park(l, l.bound(), d.now)
	}
}
