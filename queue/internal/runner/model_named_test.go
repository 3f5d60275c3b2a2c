package runner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/policyfile"
	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/throttle"
)

// A statute is a limit by name as the textbook knows it: which jobs it is about, for whom it counts them, and what.
// The engine has it from a policy file.
type statute struct {
	name   string
	types  string   // one, or one that ends with *; "" for all
	key    []string // fields
	counts string   // jobs, cost or tokens
	refuse bool     // a job that lacks what it needs is invalid
	code   code
	each   []exception
}

// An exception is what holds for some values of a key.
type exception struct {
	value string // exact, or one that ends with *; several fields stand between commas
	code  code
	free  bool // nothing limits them
}

func (s statute) String() string {
	text := fmt.Sprintf("%s(%q by %v in %s: %v room %d", s.name, s.types, s.key, s.counts, s.code, s.code.room)
	for _, e := range s.each {
		text += fmt.Sprintf(", %q: %v room %d free %v", e.value, e.code, e.code.room, e.free)
	}
	if s.refuse {
		text += ", refuses"
	}
	return text + ")"
}

// A charge is what a job costs somebody for whom rules count.
type charge struct {
	scope  string
	cost   int64
	ofUser bool // it is given back where the user has seen nothing
}

// charges returns whoever counts a job: the queue, its tenant, its user, and then the limits by name.
func (c codex) charges(t *task) (all []charge) {
	for i, scope := range scopesOf(t.lane) {
		all = append(all, charge{scope, t.cost, i == 2})
	}
	for _, s := range c.named {
		values, cost, lacks := s.asks(t)
		if _, free := s.of(values); free || lacks || cost == 0 {
			continue
		}
		all = append(all, charge{s.scope(values), cost, slices.Contains(s.key, "user")})
	}
	return all
}

// about reports whether the limit is about jobs of a type.
func (s statute) about(typ string) bool { return s.types == "" || fits(s.types, typ) }

// fits reports whether a text is as a pattern says, which may end with *.
func fits(pattern, text string) bool {
	if head, open := strings.CutSuffix(pattern, "*"); open {
		return strings.HasPrefix(text, head)
	}
	return pattern == text
}

// asks returns the values of the limit's key for a job, and what it costs. A job of another type costs nothing.
func (s statute) asks(t *task) (values []string, cost int64, lacks bool) {
	if !s.about(t.typ) {
		return nil, 0, false
	}
	for _, field := range s.key {
		value := map[string]string{"tenant": t.lane.Tenant, "user": t.lane.User, "type": t.typ, "keys.domain": t.domain}[field]
		if value == "" {
			return nil, 0, true
		}
		values = append(values, value)
	}
	switch {
	case s.counts == "jobs":
		return values, 1, false
	case s.counts == "cost":
		return values, t.cost, false
	case t.tokens < 0:
		return nil, 0, true
	}
	return values, t.tokens, false
}

// of returns what holds for the values of the key: the exact value counts before a pattern, and of patterns the longest.
func (s statute) of(values []string) (c code, free bool) {
	best, most := exception{code: s.code}, -1
	value := strings.Join(values, ",")
	if len(values) > 1 {
		value = strings.Join(each(values, strings.NewReplacer("%", "%25", ",", "%2C")), ",")
	}
	for _, e := range s.each {
		size := len(e.value)
		if e.value == value {
			size = 1000
		}
		if fits(e.value, value) && size > most {
			best, most = e, size
		}
	}
	return best.code, best.free
}

func each(texts []string, by *strings.Replacer) (all []string) {
	for _, text := range texts {
		all = append(all, by.Replace(text))
	}
	return all
}

// scope is how the limit is named for the values of its key.
func (s statute) scope(values []string) string {
	return strings.Join(append([]string{"l:" + s.name}, each(values, strings.NewReplacer("%", "%25", ":", "%3A", " ", "%20"))...), ":")
}

// limitOf returns what limits a scope of a limit by name, and what that counts; "" if there is none.
func (c codex) limitOf(scope string) (limit code, counts string) {
	words := strings.Split(strings.TrimPrefix(scope, "l:"), ":")
	for _, s := range c.named {
		if s.name != words[0] || len(s.key) != len(words)-1 {
			continue
		}
		if limit, free := s.of(each(words[1:], strings.NewReplacer("%25", "%", "%3A", ":", "%20", " "))); !free {
			return c.decreed(scope, limit), fmt.Sprint(s.types, " by ", s.key, " in ", s.counts)
		}
	}
	return code{}, ""
}

// label is that of the lane in which a job waits, as ADRs 10 and 11 have it: names of limits, each with the values of its key
// beside the tenant and the user, and with all of them and a plus sign where it has a capacity.
func (c codex) label(t *task) string {
	var parts []string
	for _, s := range c.named {
		values, cost, lacks := s.asks(t)
		limit, free := s.of(values)
		if free || lacks || cost == 0 {
			continue
		}
		var own []string
		for i, field := range s.key {
			if limit.room > 0 || field != "tenant" && field != "user" {
				own = append(own, strings.NewReplacer("%", "%25", ":", "%3A", " ", "%20", "|", "%7C", "&", "%26", "=", "%3D", ",", "%2C").Replace(values[i]))
			}
		}
		part := s.name
		if len(own) > 0 {
			part += "=" + strings.Join(own, ",")
		}
		if limit.room > 0 {
			part = "+" + part
		}
		parts = append(parts, part)
	}
	if len(parts) > 0 && c.userOf(t.lane).room > 0 {
		parts = append([]string{"+user"}, parts...)
	}
	return strings.Join(parts, "&")
}

// invalid reports whether a job lacks what a limit asks for that refuses it then.
func (c codex) invalid(t *task) bool {
	return slices.ContainsFunc(c.named, func(s statute) bool { _, _, lacks := s.asks(t); return s.refuse && lacks })
}

// limits returns the limits by name as a policy file has them.
func (c codex) limits() map[string]policyfile.Limit {
	all := make(map[string]policyfile.Limit)
	for _, s := range c.named {
		l := policyfile.Limit{Key: s.key, Counts: s.counts, Refuse: s.refuse, Bounds: s.code.bounds(), Each: make(map[string]policyfile.Bounds)}
		if s.counts == "cost" {
			l.Counts = ""
		}
		if s.types != "" {
			l.Types = []string{s.types}
		}
		for _, e := range s.each {
			if l.Each[e.value] = e.code.bounds(); e.free {
				l.Each[e.value] = policyfile.Bounds{Unlimited: true}
			}
		}
		all[s.name] = l
	}
	return all
}

func (c code) bounds() (b policyfile.Bounds) {
	for _, n := range c.norms {
		b.Rules = append(b.Rules, n.written())
	}
	for _, n := range c.shadows {
		b.Rules = append(b.Rules, n.written().AsShadow())
	}
	b.Concurrency.Jobs, b.Capacity = c.most, c.room
	return b
}

func (n norm) written() throttle.Rule {
	limit, period := int(n.n), clock.Micros(n.period)
	r := throttle.Window(limit, period)
	switch n.kind {
	case rules.Leak:
		if r = throttle.Leak(limit, period); n.ramp > 0 {
			r = r.Ramping(clock.Micros(n.ramp))
		}
	case rules.TokenBucket:
		r = throttle.TokenBucket(limit, period, int(n.burst))
	case rules.FixedWindow:
		r = throttle.FixedWindow(limit, period)
	case rules.Spacing:
		r = throttle.Spacing(period)
	}
	if n.drop {
		r = r.OrDrop()
	}
	return r
}

// statute draws a limit by name.
func (w *world) statute(name string) statute {
	s := statute{
		name: name, types: oneOf(w, "", "", "x", "y*"), counts: oneOf(w, "jobs", "cost", "tokens"), refuse: w.chance(8),
		key: oneOf(w, nil, nil, []string{"tenant"}, []string{"tenant", "user"}, []string{"keys.domain"}, []string{"keys.domain"}, []string{"type"}, []string{"tenant", "keys.domain"}),
	}
	return w.bound(s)
}

// bound draws what a limit by name is, and for which values it is something else.
func (w *world) bound(s statute) statute {
	s.code, s.each = w.namedCode(), nil
	values := map[string][]string{"tenant": {"t0", "t*"}, "keys.domain": {"a", "a*", "b, c:"}, "tenant,keys.domain": {"t0,a", "t1,*", "t0,b%2C c:"}}
	for _, value := range values[strings.Join(s.key, ",")] {
		if w.chance(4) {
			s.each = append(s.each, exception{value: value, code: w.namedCode(), free: w.chance(3)})
		}
	}
	return s
}

func (w *world) namedCode() code {
	c := w.bounded(w.code(oneOf[int64](w, 1, 4, 10)))
	if w.moving { // of what counts another thing tomorrow nobody can say how much runs
		c.most = 0
	}
	for i := range c.norms {
		c.norms[i].drop = c.norms[i].kind == rules.Window && w.chance(5)
	}
	if w.chance(6) {
		c.shadows, c.norms = c.norms[:1], c.norms[1:]
	}
	return c
}

// nameLimits draws limits by name, for the worlds that have some.
func (w *world) nameLimits() (all []statute) {
	for i := range w.limits {
		if !w.chance(5) {
			all = append(all, w.statute(fmt.Sprint("n", i)))
		}
	}
	return all
}

// changeLimits returns limits by name that differ in one place.
func (w *world) changeLimits(all []statute) []statute {
	if len(all) == 0 {
		return w.nameLimits()
	}
	all = slices.Clone(all)
	i := w.IntN(len(all))
	switch p := w.IntN(6); {
	case p == 0: // it is gone
		return slices.Delete(all, i, i+1)
	case p == 1 && len(all) < w.limits:
		return w.nameLimits()
	case p == 2 && w.moving:
		all[i] = w.statute(all[i].name)
	default:
		all[i] = w.bound(all[i])
	}
	return all
}

// subject gives a job what limits by name are about.
func (w *world) subject(t *task) {
	t.typ, t.tokens = "x", -1
	if w.limits == 0 {
		return
	}
	t.typ, t.domain, t.tokens = oneOf(w, "x", "y1", "y2"), oneOf(w, "", "a", "a", "ab", "b, c:"), oneOf[int64](w, -1, 0, 1, 1, 2, 5)
}

// limitScope draws a limit by name for values that there may be; "" if the world has none.
func (w *world) limitScope() string {
	w.mu.Lock()
	named := w.judge.codex.named
	w.mu.Unlock()
	if len(named) == 0 {
		return ""
	}
	s := named[w.IntN(len(named))]
	draw := map[string]func() string{
		"tenant": w.tenant, "user": w.user,
		"type": func() string { return oneOf(w, "x", "y1", "y2") }, "keys.domain": func() string { return oneOf(w, "a", "ab", "b, c:") },
	}
	var values []string
	for _, field := range s.key {
		values = append(values, draw[field]())
	}
	return s.scope(values)
}

// charges returns whoever counts a job under the policies in force.
func (j *judge) charges(t *task) []charge {
	if t.chargedIn != j.eras || t.chargedAs != t.lane {
		t.charges, t.chargedIn, t.chargedAs = j.codex.charges(t), j.eras, t.lane
	}
	return t.charges
}

// subjects returns whoever may count the first job of a lane, which is any of those that wait in it. A limit by name is
// asked for the most that any job costs that waits for it: others do not pass a costly one.
func (j *judge) subjects(tasks []*task, now int64) (all []charge) {
	most := make(map[string]int64)
	for _, t := range tasks {
		if t.state != waits || t.ready > now || t.oddly {
			continue
		}
		for _, c := range j.charges(t) {
			if most[c.scope] == 0 {
				all = append(all, c)
			}
			most[c.scope] = max(most[c.scope], c.cost)
		}
	}
	for i, c := range all {
		all[i].cost = max(most[c.scope], j.biggest[c.scope])
	}
	return all
}

// survey notes what waits for limits by name: the most that a job costs of each, and which of them have jobs that wait
// for a second one, too. Those may keep others waiting: a limit waits for a job that it has called while another limit
// keeps that, for as long as it takes from one start to the next.
func (j *judge) survey() {
	j.biggest, j.detours = make(map[string]int64), make(map[string]bool)
	if len(j.codex.named) == 0 {
		return
	}
	for _, tasks := range j.lanes {
		for _, t := range tasks {
			if t.state != waits {
				continue
			}
			named := j.charges(t)[3:]
			for _, c := range named {
				j.biggest[c.scope] = max(j.biggest[c.scope], c.cost)
				j.detours[c.scope] = j.detours[c.scope] || len(named) > 1
			}
		}
	}
}

// detour returns how long a lane may wait for what others do that wait for two limits by name.
func (j *judge) detour(all []charge) (longest int64) {
	for _, c := range all {
		if j.detours[c.scope] {
			for _, s := range j.codex.named {
				longest = max(longest, s.code.lasting())
				for _, e := range s.each {
					longest = max(longest, e.code.lasting())
				}
			}
			for _, d := range j.codex.decrees {
				longest = max(longest, d.code.lasting())
			}
		}
	}
	return 2 * longest
}

// A refusal is a drop by a rule that drops what it does not admit.
type refusal struct {
	t       *task
	charges []charge
	at      int64
}

// checkRefusals asks of the drops before an instant whether a rule did not admit the jobs. What was decided before them has
// started by then.
func (j *judge) checkRefusals(now int64) {
	j.refusals = slices.DeleteFunc(j.refusals, func(r refusal) bool {
		if now < r.at+decided {
			return false
		}
		if !r.t.oddly && !slices.ContainsFunc(r.charges, func(c charge) bool { return j.ledger(c.scope).refuses(c, r.at) || j.mayLackRefund(c, r.at) }) {
			j.fail(r.t, "%s was dropped by a rule that lets it start", r.t)
		}
		return true
	})
}

// mayLackRefund reports whether the leader may not have heard yet at an instant that a start was given back: there was trouble.
func (j *judge) mayLackRefund(c charge, at int64) bool {
	return j.calm > at-decided && j.ledger(c.scope).gone > at-patience
}

// refuses reports whether a rule of the subject may have dropped a job at about that instant.
func (l *ledger) refuses(c charge, at int64) bool {
	from := at - decided
	if max(l.since, l.vague, l.gone) > from {
		return true
	}
	near := slices.ContainsFunc(l.starts, func(s spend) bool { return s.at >= from || s.slot >= from })
	return slices.ContainsFunc(l.code.norms, func(n norm) bool { return n.drop && (near || n.first(l, from, c.cost) > from) })
}

// otherLimits takes in that limits by name count other things than before. What runs is counted by the claims that the
// old ones have made: how much of it counts nobody asks.
func (j *judge) otherLimits(l *ledger) {
	now := clockNow()
	const longest = 7_000_000 // of a handler
	clear(l.running)
	j.haunts[l.scope] = now + longest
	l.muddled, l.vague = now, max(l.vague, now+decided+l.code.lasting())
}

func cloneOf(c codex) codex {
	c.digests = slices.Clone(c.digests)
	c.tenants, c.users, c.weights, c.named = slices.Clone(c.tenants), slices.Clone(c.users), slices.Clone(c.weights), slices.Clone(c.named)
	if c.decrees = maps.Clone(c.decrees); c.decrees == nil {
		c.decrees = map[string]decree{}
	}
	return c
}
