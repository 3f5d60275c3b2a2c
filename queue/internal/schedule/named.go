package schedule

import (
	"slices"
	"strings"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A limit by name counts for the values of a key: the limit "domain", say, for gmail.com. Each such pair is an instance.
// It is a subject like the queue, a tenant or a user: it has rules, a state, a concurrency limit, pauses. A job is counted
// by all instances that it is subject to, in the same decision as by the other three ([share]). The lanes that an instance
// blocks wait in its line (named_lines.go).

// An instance is a limit by name for the values of its key.
type instance struct {
	subject
	name   string // of the scope: l:<limit>:<values>
	limit  string // name of the limit
	line   heap[*waiters]
	of     map[*tenant]*waiters // those in the line, and those apart
	urgent []*lane              // come before all others
	opens  int                  // place among those that open
	called *lane                // the lane that it waits for; nil for none
	asking []*tenant            // wait for what it remembers
	rests  bool                 // among those that may be forgotten
	gone   bool                 // forgotten: another one has taken its place

	// Of a shared limit: its rules are decided in Redis, and it has grants of them, which are not to be expected before an instant.
	shared   *Shared // nil if its rules are decided here
	expected int64
	costs    costNames // if several limits are decided together
}

// A share is what a job costs one of its subjects.
type share struct {
	who    toucher
	of     *subject
	cost   int
	each   []int // what it costs each limit of a bundle, of which cost is the name; nil otherwise
	ofUser bool  // a limit by name that counts for each user

	allows int64 // when the rules let it start
	rule   int   // by which of them, or -1
}

// name returns the name of a rule or of the concurrency limit, see [Limit.RuleName].
func (s share) name(rule string) string {
	if named, is := s.who.(*instance); is {
		return nameOf(named.limit, rule)
	}
	return rule
}

// ruleName returns the name of a rule by its number.
func (s share) ruleName(rule int) string { return s.name(s.of.rules.Name(rule)) }

func (i *instance) subjectOf() *subject { return &i.subject }

func (i *instance) scope() string { return i.name }

// govern puts the limit of policies in force.
func (i *instance) govern(p *Policies) {
	scope, ofPlaces := strings.CutPrefix(i.name, leaseScope)
	limit, _ := p.Limit(scope)
	ruled, places := limit.apart()
	if ofPlaces {
		i.limitBy(places)
	} else {
		i.limitBy(ruled)
	}
}

// limitBy lets a limit count for the instance.
func (i *instance) limitBy(limit Limit) {
	i.rules, i.subject.limit, i.shared = limit.Rules, limit.Concurrency, limit.Shared
	if i.leases = limit.Leased; !i.leases {
		i.leased = 0
	}
	if i.shared != nil {
		i.rules = i.shared.Grants
	}
}

// shares appends whoever counts the first job of a lane.
func (s *Scheduler) shares(all []share, l *lane) []share {
	u, env := l.user, l.heads[0].Env
	all = append(all,
		share{who: s, of: &s.queue, cost: env.Cost},
		share{who: u.tenant, of: &u.tenant.subject, cost: env.Cost},
		share{who: u, of: &u.subject, cost: env.Cost})
	if s.policies == nil || s.policies.Named == nil {
		if l.line != nil {
			s.leaveLine(l)
		}
		return all
	}
	if !l.counted.holds(s.policies, env) {
		l.counted = s.countedBy(l.name(), env)
		if l.line != nil && !slices.Contains(l.counted.instances, l.line) {
			s.leaveLine(l)
		}
	}
	if s.policies.Personal {
		for _, of := range l.counted.shares {
			if of.ofUser {
				of.of.state.Of(&u.person.Person)
			}
		}
	}
	return append(all, l.counted.shares...)
}

// counted is which limits by name count a job of a lane, and all others of the lane that are counted as it is. It is not
// changed once it is made.
type counted struct {
	job       *envelope.Envelope
	by        *Policies
	shares    []share
	instances []*instance // of the shares
	limits    []string    // their names
	label     string      // of the lane in which such a job waits
}

func (s *Scheduler) countedBy(lane envelope.Lane, env *envelope.Envelope) counted {
	uses, label, _ := s.policies.Job(lane, env)
	c := counted{job: env, by: s.policies, label: label, shares: s.instancesOf(s.bundled(split(uses[commonLimits:])))}
	for _, of := range c.shares {
		c.instances = append(c.instances, of.who.(*instance))
	}
	for _, use := range uses[commonLimits:] {
		c.limits = append(c.limits, use.Name)
	}
	return c
}

// holds reports whether a job is counted so, under policies.
func (c *counted) holds(p *Policies, env *envelope.Envelope) bool {
	return c.by == p && env.CountsAs(c.job) && !slices.ContainsFunc(c.instances, func(i *instance) bool { return i.gone })
}

// named returns the instances that count a job of a lane. Of nil they are those of the lane's label,
// without costs.
func (s *Scheduler) named(lane envelope.Lane, env *envelope.Envelope) []share {
	if s.policies == nil || s.policies.Named == nil {
		return nil
	}
	return s.instancesOf(s.bundled(split(s.policies.Uses(lane, env)[commonLimits:])))
}

// instancesOf returns the instances of limits by name.
func (s *Scheduler) instancesOf(uses []Use) []share {
	all := make([]share, len(uses))
	for i, use := range uses {
		of := s.instance(use)
		all[i] = share{who: of, of: &of.subject, cost: use.Cost, each: use.each, ofUser: use.OfUser}
	}
	return all
}

// labelled returns the instances of a lane's label.
func (s *Scheduler) labelled(lane envelope.Lane) (all []*instance) {
	if lane.Label == "" {
		return nil
	}
	for _, of := range s.named(lane, nil) {
		all = append(all, of.who.(*instance))
	}
	return all
}

func (s *Scheduler) instance(use Use) *instance {
	i := s.instances[use.Scope]
	if i == nil {
		i = &instance{name: use.Scope, limit: use.Name, of: make(map[*tenant]*waiters), opens: outside}
		i.line.at = func(w *waiters) *int { return &w.place }
		i.limitBy(use.Limit)
		i.paused = s.paused[use.Scope]
		i.known = i.leases // it remembers nothing
		s.instances[use.Scope] = i
		s.restInstance(i)
	}
	return i
}

// idleInstances is how many instances are remembered that nothing waits for.
const idleInstances = 10_000

// restInstance notes that nothing may wait for an instance, or run by it. The oldest of those is forgotten if there are
// many: what its rules remember stands in Redis.
func (s *Scheduler) restInstance(i *instance) {
	if i.rests {
		return
	}
	i.rests = true
	s.resting = append(s.resting, i)
	for len(s.resting) > idleInstances {
		i := s.resting[0]
		s.resting = s.resting[1:]
		switch i.rests = false; {
		case i.gone || i.awaited() || i.running > 0: // it comes to rest again
		case i.changed || i.asked || i.leased > 0 || len(i.state.Grants()) > 0:
			i.rests = true
			s.resting = append(s.resting, i)
			return
		default:
			i.gone = true
			delete(s.instances, i.name)
		}
	}
}

// lacks reports whether what an instance remembers has to be read before it decides. Without rules that remember
// something it decides nothing: a limit that has hours only, or can only be paused, costs no reading.
func (i *instance) lacks() bool { return !i.known && i.rules.Remembers() }

// askNamed asks for what the instances of a lane's label remember: with the lane's first jobs, as a rule, and once more if those
// that count the first job were forgotten while the lane waited.
func (s *Scheduler) askNamed(l *lane) {
	if l.label == "" || l.askedBy == s.policies && !slices.ContainsFunc(l.counted.instances, (*instance).forgotten) {
		return
	}
	l.askedBy = s.policies
	for _, of := range s.labelled(l.name()) {
		if of.lacks() {
			s.ask(of)
		}
	}
}

// known reports whether what all instances remember is known that count the job. If it is not, the tenant
// waits for it.
func (d *decision) known(t *tenant) bool {
	known := true
	for _, of := range d.of[3:] {
		i := of.who.(*instance)
		if !i.lacks() {
			continue
		}
		known = false
		d.s.ask(i)
		i.asking = append(i.asking, t)
	}
	if !known {
		d.fetch(t)
	}
	return known
}

// forgotten reports whether an instance has to be read that nobody has asked for.
func (i *instance) forgotten() bool { return i.gone || i.lacks() && !i.asked }

// learnInstance takes in what an instance remembers.
func (s *Scheduler) learnInstance(scope, state string, now int64) {
	i := s.instances[scope]
	if i == nil {
		return
	}
	i.learn(state)
	for _, t := range i.asking {
		s.rouse(t, now)
	}
	i.asking = nil
	s.arm(i, now)
}
