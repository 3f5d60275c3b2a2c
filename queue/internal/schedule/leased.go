package schedule

import (
	"cmp"
	"slices"
)

// A concurrency limit that counts jobs of several partitions lends each of them places: so many jobs may run here at once. To the scheduler
// they are the limit. It says how many it could use more of, and is told how many it has ([Leased]). What is lent to whom is decided in
// Redis (package leader).
//
// The places of a limit are an instance of their own, beside that of its rules: jobs that several limits share the rules of have one line
// (bundle.go), and jobs that wait for places have another.

// leaseScope begins the scopes of leased places. No limit has such a scope.
const leaseScope = "c:"

// PlacesOf returns the scope of the places of a limit.
func PlacesOf(scope string) string { return leaseScope + scope }

// apart returns a limit without its concurrency, and that alone, if its places are leased.
func (l Limit) apart() (ruled, places Limit) {
	if !l.Leased {
		return l, Limit{}
	}
	places = Limit{Scope: PlacesOf(l.Scope), Concurrency: l.Concurrency, Leased: true}
	l.Concurrency, l.Leased = Concurrency{}, false
	return l, places
}

// split returns the limits of a job with those apart whose places are leased.
func split(uses []Use) []Use {
	all := uses
	for k, use := range uses {
		ruled, places := use.Limit.apart()
		if !places.Leased {
			continue
		}
		if len(all) == len(uses) {
			all = slices.Clone(uses)
		}
		all[k].Limit = ruled
		all = append(all, Use{Name: use.Name, Limit: places, Cost: 1})
	}
	return all
}

// A Leasing is what a limit has of its places, and how many it could use more.
type Leasing struct {
	Scope           string
	Most            int // that the limit lets run, in all partitions
	Leased, Running int // here
	Wants           int // jobs that wait for places, [MostWanted] at most
	Weight          int // of their tenants together
}

// noteLeasing notes that places of a limit may be leased.
func (s *Scheduler) noteLeasing(who toucher) {
	if i, is := who.(*instance); is && i.leases {
		s.leasing[i] = true
	}
}

// Leasing returns the limits whose places are leased of which jobs run or wait here, or that have places left.
func (s *Scheduler) Leasing(now int64) (all []Leasing) {
	for i := range s.leasing {
		l := Leasing{Scope: i.name, Most: i.subject.limit.Most(s.running.places), Leased: i.leased, Running: i.running}
		l.Wants, l.Weight = s.wantsPlaces(i, now)
		if i.gone || !i.leases || l.Leased == 0 && l.Running == 0 && !i.awaited() {
			delete(s.leasing, i)
			continue
		}
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b Leasing) int { return cmp.Compare(a.Scope, b.Scope) })
	return all
}

// wantsPlaces returns how many jobs wait in the line of an instance whose tenants may start something within the lead, and what these tenants
// weigh together.
func (s *Scheduler) wantsPlaces(i *instance, now int64) (jobs, weight int) {
	if i.paused > now || s.queue.paused > now {
		return 0, 0
	}
	for _, l := range i.urgent {
		jobs, weight = jobs+1, weight+max(1, l.user.tenant.policy.Weight)
	}
	for _, w := range i.line.entries {
		if jobs >= MostWanted {
			break
		}
		if t := w.item.tenant; s.opens(t, now) <= now+s.lead {
			jobs, weight = jobs+w.item.lanes.len(), weight+max(1, t.policy.Weight)
		}
	}
	return min(jobs, MostWanted), weight
}

// lease takes in how many places an instance has.
func (s *Scheduler) lease(f Leased, now int64) (frees bool) {
	i := s.instances[f.Scope]
	if i == nil || !i.leases {
		return false
	}
	was := s.full(&i.subject)
	i.leased = f.Places
	s.noteLeasing(i)
	if was && !s.full(&i.subject) {
		i.fullUntil, frees = now, true
		s.unblock(i, now)
	}
	return frees
}
