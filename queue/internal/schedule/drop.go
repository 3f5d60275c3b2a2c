package schedule

// A job is dropped, and never starts, for one of these reasons: somebody has cancelled it; its latest start comes before its slot; or
// a rule that drops does not let it start at the slot.

// drop takes the first job out of a lane for good. The lane keeps its turn, and not the bound of a job that cost more than the next
// one may.
func (d *decision) drop(l *lane, reason, rule string) {
	d.plan.Drops = append(d.plan.Drops, Drop{Lane: l.name(), Head: l.heads[0], Reason: reason, Rule: rule})
	first := l.first()
	if env := l.heads[0].Env; env != nil && env.Cost > 1 {
		d.s.wake(l, d.now)
	}
	d.leave(l, first)
}

// unfit returns why a job that may not start before its slot is not to start at all, whatever the rules say; "" if it is.
func (d *decision) unfit(t *tenant, h Head, slot int64) (reason string) {
	if d.s.CancelledAll(h.Env) {
		return Cancelled
	}
	var hours []Remembered
	if d.s.policies.Closes() {
		hours = d.hours(d.of)
	}
	deadline := t.policy.Latest(h.Env, d.s.cancelled, hours)
	if deadline > 0 && slot > deadline || h.Env.Until > 0 && slot >= h.Env.Until {
		return Expired
	}
	return ""
}

// dropIfRefused drops the first job of a lane if a rule that drops does not let it start at its slot, and reports whether it has.
func (d *decision) dropIfRefused(l *lane, slot int64) bool {
	for _, who := range d.of {
		if rule := who.refusing(slot); rule != "" {
			d.drop(l, Refused, rule)
			d.countRefused()
			return true
		}
	}
	return false
}

// refusing returns the name of a rule that drops the job at its slot; "" if there is none. Those of a shared limit have decided before.
func (s share) refusing(slot int64) string {
	if i := s.of.rules.Refusing(&s.of.state, slot, s.cost); i >= 0 {
		return s.ruleName(i)
	}
	return s.of.state.Refused(slot, s.cost)
}

// countRefused lets rules with count_dropped count the refused job that was dropped last. Shared limits are told once the commit has happened.
func (d *decision) countRefused() {
	drop := &d.plan.Drops[len(d.plan.Drops)-1]
	for _, who := range d.of {
		if i, is := who.who.(*instance); is && i.shared.counts() {
			drop.Counted = append(drop.Counted, Counted{i.shared.Parts, who.costs().Of})
		}
		if who.of.rules.Counts() && who.of.rules.SpendRefused(&who.of.state, d.now, who.cost) {
			d.s.touch(who.who)
		}
	}
}
