package runner

import (
	"fmt"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// storm is what operators do to others while tenants contend for places.
var storm = []act{{4, (*world).pauseOther}, {4, (*world).resumeOther}, {3, (*world).changeOther}, {2, (*world).overrideOther}, {2, (*world).cancelOther}, {1, (*world).purgeOther}}

// stock is how many jobs each contestant has waiting: more than all places serve in two seconds, after which it gets
// others at the latest.
const stock = 200

const bystander = "nobody"

func (w *world) pauseOther() {
	w.pauseFor(oneOf(w, envelope.TenantScope(bystander), envelope.UserScope("t0", bystander)), time.Duration(w.IntN(2000))*time.Millisecond)
}

func (w *world) resumeOther() { w.pauseFor(envelope.TenantScope(bystander), 0) }

// changeOther puts policies in force in which nothing that concerns the contestants differs.
func (w *world) changeOther() {
	w.mu.Lock()
	c := w.judge.codex
	w.mu.Unlock()
	w.govern(c)
}

func (w *world) cancelOther() {
	w.offerTo(bystander, "u", 1)
	if t := w.pickTask(func(t *task) bool { return t.lane.Tenant == bystander && t.id != "" && !t.over() }); t != nil {
		w.cancelTask(t)
	}
}

func (w *world) purgeOther() { w.purgeOf(bystander) }

// contest lets tenants, and users of one tenant, contend for places, for the rules of the queue, or for a limit by name, for
// a minute: each of them has something due all the time.
func (w *world) contest() {
	w.tenants = 3 + w.IntN(20)
	c := codex{}
	for i := range w.tenants {
		c.tenants, c.users, c.weights = append(c.tenants, code{}), append(c.users, code{}), append(c.weights, oneOf(w, 1, 1, 2, 5))
		if w.chance(3) {
			c.weights[i] = 1
		}
	}
	label := "" // of all lanes
	slow := code{norms: []norm{{kind: rules.Leak, n: 20, period: 1_000_000}}}
	switch w.IntN(3) {
	case 0:
		c.queue = slow
	case 1:
		c.named = []statute{{name: "n0", counts: "cost", code: slow}}
		label = "n0"
	}
	w.mu.Lock()
	w.judge.ledgers = map[string]*ledger{}
	w.mu.Unlock()
	w.govern(c)
	users := 1 + w.IntN(3)
	fill := func() {
		for i := range w.tenants {
			for u := range users {
				tenant, user := fmt.Sprint("t", i), fmt.Sprint("u", u)
				w.mu.Lock()
				waiting := 0
				for p := range 3 {
					waiting += len(w.judge.lanes[envelope.Lane{Tenant: tenant, User: user, Priority: p, Label: label}])
				}
				w.mu.Unlock()
				if waiting < stock {
					w.offerTo(tenant, user, stock)
				}
			}
		}
	}
	fill()
	w.pass(2 * time.Second)
	all := 0
	for _, a := range w.scene.acts {
		all += a.often
	}
	const seconds = 30
	begun, next, marked := clockNow(), clockNow(), clockNow()
	for clockNow() < begun+seconds*1_000_000 {
		if w.over() {
			return
		}
		if clockNow() >= next {
			fill()
			next += 1_000_000
		}
		if clockNow() >= marked {
			w.mu.Lock()
			w.judge.mark(w.tenants, users, c)
			w.mu.Unlock()
			marked += 5_000_000
		}
		n := w.IntN(all)
		for _, a := range w.scene.acts {
			if n -= a.often; n < 0 {
				a.do(w)
				break
			}
		}
		w.pass(min(w.between(), time.Second))
	}
}

// mark compares what each contestant was served since each mark before.
func (j *judge) mark(tenants, users int, c codex) {
	now := map[string]int64{}
	for scope, n := range j.served {
		now[scope] = n
	}
	for k, before := range j.marks {
		served := func(scope string, weight int) float64 { return float64(now[scope]-before[scope]) / float64(weight) }
		least, most := "", ""
		var lowest, highest float64
		for i := range tenants {
			scope := envelope.TenantScope(fmt.Sprint("t", i))
			n := served(scope, c.weights[i])
			if least == "" || n < lowest {
				least, lowest = scope, n
			}
			if most == "" || n > highest {
				most, highest = scope, n
			}
			j.markUsers(i, users, k, now, before)
		}
		if highest-lowest > unfair {
			j.w.fail("", "", "in %d s %s was served %.1f by its weight, and %s %.1f", 5*(len(j.marks)-k), least, lowest, most, highest)
			return
		}
	}
	j.marks = append(j.marks, now)
}

// markUsers compares the users of a tenant.
func (j *judge) markUsers(i, users, k int, now, before map[string]int64) {
	low, high := int64(never), int64(0)
	for u := range users {
		scope := envelope.UserScope(fmt.Sprint("t", i), fmt.Sprint("u", u))
		n := now[scope] - before[scope]
		low, high = min(low, n), max(high, n)
	}
	if high-low > unfairUsers+high/20 {
		j.w.fail("", "", "in %d s a user of t%d was served %d, and another %d", 5*(len(j.marks)-k), i, low, high)
	}
}

// unfair is by how much what two contestants are served may differ, by their weights: a job of each
// at the beginning and the end, and what was decided ahead.
const unfair = 4

// unfairUsers is the same for the users of a tenant, with a twentieth of what they were served: a lane
// whose first jobs are being read, ten at a time, misses a turn, each of them as often.
const unfairUsers = 12
