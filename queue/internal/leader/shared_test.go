package leader

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
	"github.com/waterclock/waterclock/throttle"
)

// atAccount returns a term that has a shared limit with a rule, and a function that asks for so many of its instants.
func atAccount(t *testing.T, rule throttle.Rule) (*term, func(n int) []throttle.Decision) {
	limiter, now := throttle.New(throttle.NewMemoryStore()), time.Now()
	w := worker.New(worker.Config{Name: "w", Places: worker.NewPlaces(1), Shared: limiter, Log: slog.New(slog.DiscardHandler)}, clock.New(nil), nil)
	w.Clock.Observe(store.Reading{Now: now.UnixMicro(), Asked: now, Answered: now})
	term := &term{w: w, ctx: t.Context(), reports: make(chan func(int64), 1), sched: schedule.New(schedule.Settings{}, "")}
	term.shared.of = make(map[string]*quota)

	subject := throttle.Subject{Key: "account", Rules: []throttle.Rule{rule}}
	request := throttle.Request{By: "push", Subjects: []throttle.Subject{subject}}
	return term, func(n int) []throttle.Decision {
		all, err := limiter.ReserveMany(t.Context(), 0, time.Second, slices.Repeat([]throttle.Request{request}, n)...)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
}

// A leader gives an instant back once, and asks again then. An answer to what it had asked before does not make it wait.
func TestWhoGivesBackAsksAgain(t *testing.T) {
	term, ask := atAccount(t, throttle.Window(2, time.Hour))
	q, first := term.quota("l:account"), ask(2)[0] // the other one is at the same instant
	grant := rules.Grant{At: first.Slot.UnixMicro(), Cost: 1}
	q.given = []given{{grant, first}}
	q.given[0].Objection = "leak 1/1h" // what comes back does not say so
	asked := time.Now()
	denied := ask(1)[0]
	if !first.Spent() || denied.Spent() {
		t.Fatalf("%v and %v of two", first, denied)
	}
	soon := func() int64 { now, _ := term.w.Clock.Now(); return now + (10 * time.Millisecond).Microseconds() }
	q.next = soon() + 1_000_000

	term.giveBack([]schedule.Missed{{Scope: "l:account", Grant: grant, Returned: true}})
	(<-term.reports)(soon())
	if q.next > soon() {
		t.Errorf("it asks again in %v", clock.Micros(q.next-soon()))
	}
	if q.margin > 0 {
		t.Errorf("a job that has come back lets it ask %v earlier", q.margin)
	}
	term.answered(question{Want: schedule.Want{Scope: "l:account"}}, reach{}, []throttle.Decision{denied}, asked, time.Now())
	if q.next > soon() {
		t.Errorf("after an old answer it asks again in %v", clock.Micros(q.next-soon()))
	}

	if second := ask(1)[0]; !second.Spent() {
		t.Error("the instant was not given back")
	}
	term.giveBack([]schedule.Missed{{Scope: "l:account", Grant: grant, Returned: true}})
	term.workers.Wait()
	if third := ask(1)[0]; third.Spent() {
		t.Error("the instant was given back twice")
	}
}

// Where rules refuse jobs these are dropped after a second, also if instants of the limit come back all the time. An answer that is older than
// what came back last drops none.
func TestRefusedJobsAreDropped(t *testing.T) {
	term, ask := atAccount(t, throttle.Window(1, time.Hour).OrDrop())
	of := question{schedule.Want{Scope: "l:account", Parts: []schedule.Part{{Key: "account"}}}, []schedule.Cost{{Name: 1}}}
	q, asked := term.quota("l:account"), time.Now()
	if first := ask(1)[0]; !first.Spent() {
		t.Fatal(first)
	}
	term.answered(of, reach{}, ask(1), asked, time.Now())
	if now, _ := term.w.Clock.Now(); q.next < now+(settlingEvery-askEvery).Microseconds() {
		t.Errorf("it asks again in %v", clock.Micros(q.next-now))
	}
	for after := range 3 * time.Second / settlingEvery {
		old := after%6 == 5
		asked = asked.Add(settlingEvery)
		if old {
			q.returned = asked
		}
		if drops := q.drops(q.refusing+(after*settlingEvery).Microseconds(), asked); drops != (after*settlingEvery >= settledAfter && !old) {
			t.Errorf("after %v, with an old answer %v: it drops %v", after*settlingEvery, old, drops)
		}
	}
	if q.drops(q.refused+2*settledFor.Microseconds(), asked.Add(time.Second)) {
		t.Error("rules that have refused nothing for some time drop a job at once")
	}
}

// What is asked for begins where other limits let a job start, also where the question is asked some time before.
func TestInstantsBeginWhereOthersLetThem(t *testing.T) {
	term := &term{w: idle()}
	term.shared.of, term.shared.late = make(map[string]*quota), 2*time.Millisecond
	const now = 1_000_000
	for _, from := range []int64{0, now, now + 50_000} {
		want := schedule.Want{Scope: "l:account", From: from}
		at := max(now, term.asksFor(want))
		if begins := at + term.after(want, at).Microseconds(); begins < from || begins < at+term.told(want).Microseconds() {
			t.Errorf("asked at %d, instants begin at %d, and others let a job start at %d", at, begins, from)
		}
	}
	if at := term.asksFor(schedule.Want{Scope: "l:account", From: now}); at > now-(4*time.Millisecond).Microseconds() {
		t.Errorf("it is asked %v before, and questions are 2ms late", clock.Micros(now-at))
	}
}

// Shared limits with count_dropped count a refused job once the commit that drops it has happened, and not before.
func TestRefusedJobsCountOnceTheyAreDropped(t *testing.T) {
	rule := throttle.Window(3, time.Hour).OrDrop().CountingDropped()
	term, ask := atAccount(t, rule)
	drop := schedule.Drop{Reason: schedule.Refused, Counted: []schedule.Counted{{Parts: []schedule.Part{{Key: "account", Rules: []throttle.Rule{rule}}}, Costs: []int{3}}}}
	b := &inflight{t: term, commit: schedule.Commit{Plan: schedule.Plan{Drops: []schedule.Drop{drop}}}}
	b.decided(false)
	term.workers.Wait()
	if d := ask(1)[0]; !d.Spent() {
		t.Errorf("%+v, though nothing was dropped", d)
	}
	b.decided(true)
	term.workers.Wait()
	if d := ask(1)[0]; d.Outcome != throttle.Dropped {
		t.Errorf("%+v where one of cost 3 was refused; want it dropped", d)
	}
}
