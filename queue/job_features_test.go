package queue_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A scene is what jobs do under a policy. Nothing starts before its begin; all jobs are
// offered until then, one by one, since lanes are ordered by arrival.
type scene struct {
	policy   queue.Policy
	jobs     []queue.Job
	receipts string // what becomes of the offers
	starts   string // the jobs in the order of their starts, each with its slot in units after the begin; + is the grace
	drops    string // newest first
	inbox    string // what the inbox refuses beside them
}

// A scenery is what a scene can be painted with: its instants.
type scenery struct {
	stage
	begin time.Time
	lead  int // units from the first offer to the begin
}

// at is an instant, in units after the begin.
func (s scenery) at(units int) time.Time { return s.begin.Add(s.units(units)) }

// leak lets one job start in every unit.
func (s scenery) leak() []throttle.Rule { return []throttle.Rule{throttle.Leak(1, s.unit)} }

func named(id, user string, changes ...func(*queue.Job)) queue.Job {
	j := queue.Job{ID: id, Tenant: "school", User: user, Type: "push"}
	for _, change := range changes {
		change(&j)
	}
	return j
}

func cost(n int) func(*queue.Job)             { return func(j *queue.Job) { j.Cost = n } }
func notBefore(at time.Time) func(*queue.Job) { return func(j *queue.Job) { j.NotBefore = at } }
func deadline(at time.Time) func(*queue.Job)  { return func(j *queue.Job) { j.StartBy = at } }
func high(j *queue.Job)                       { j.Priority = queue.High }
func low(j *queue.Job)                        { j.Priority = queue.Low }
func news(j *queue.Job)                       { j.CollapseKey = "news" }

// scenes are the features of a job and of a bucket. Where a deadline decides, it is far
// from the slots on either side: a slow machine must not change the story.
func scenes() map[string]func(s scenery) scene {
	return map[string]func(s scenery) scene{
		"first come, first served": func(s scenery) scene {
			return scene{queue.Policy{Tenant: s.leak()}, []queue.Job{named("a", "u"), named("b", "u"), named("c", "u")},
				"accepted accepted accepted", "a@0 b@1 c@2", "", ""}
		},
		"users take turns": func(s scenery) scene {
			return scene{queue.Policy{Tenant: s.leak()}, []queue.Job{named("a1", "a"), named("a2", "a"), named("a3", "a"), named("b1", "b")},
				"accepted accepted accepted accepted", "a1@0 b1@1 a2@2 a3@3", "", ""}
		},
		"an ID is offered once": func(s scenery) scene {
			return scene{queue.Policy{Tenant: s.leak()}, []queue.Job{named("a", "u"), named("a", "u"), named("a", "v"), named("b", "u")},
				"accepted duplicate duplicate accepted", "a@0 b@1", "", "a:duplicate a:duplicate"}
		},
		"cost, of a leak": func(s scenery) scene {
			return scene{queue.Policy{Tenant: s.leak()}, []queue.Job{named("a", "a", cost(3)), named("b", "a")},
				"accepted accepted", "a@0 b@3", "", ""}
		},
		"cost, of a window": func(s scenery) scene {
			return scene{queue.Policy{User: []throttle.Rule{throttle.Window(3, s.units(2))}},
				[]queue.Job{named("a", "a", cost(2)), named("b", "a", cost(2)), named("huge", "a", cost(4))},
				"accepted accepted dropped", "a@0 b@2+", "huge:impossible", ""}
		},
		"not before": func(s scenery) scene {
			return scene{queue.Policy{Tenant: s.leak()}, []queue.Job{named("later", "a", notBefore(s.at(3))), named("now", "a")},
				"accepted accepted", "now@0 later@3", "", ""}
		},
		"a deadline that its turn shows to be missed": func(s scenery) scene {
			return scene{queue.Policy{Tenant: s.leak()},
				[]queue.Job{named("a", "a", cost(10)), named("late", "b", deadline(s.at(5)), cost(10)), named("c", "c", deadline(s.at(100)))},
				"accepted accepted accepted", "a@0 c@10", "late:expired", ""}
		},
		"a deadline that is certain to be missed": func(s scenery) scene {
			return scene{queue.Policy{Tenant: s.leak()}, []queue.Job{named("late", "b", deadline(s.at(-1))), named("b", "b")},
				"dropped accepted", "b@0", "late:expired", ""}
		},
		"max_wait": func(s scenery) scene {
			return scene{queue.Policy{Tenant: s.leak(), MaxWait: s.units(s.lead + 15)},
				[]queue.Job{named("a", "a"), named("b", "a", cost(s.lead+30)), named("c", "a"), named("d", "a", deadline(s.at(1000)))},
				"accepted accepted accepted accepted", fmt.Sprintf("a@0 b@1 d@%d", s.lead+31), "c:expired", ""}
		},
		"priority": func(s scenery) scene {
			return scene{queue.Policy{Tenant: s.leak()}, []queue.Job{named("l", "a", low), named("n", "b"), named("h", "c", high), named("h2", "a", high)},
				"accepted accepted accepted accepted", "h@0 h2@1 n@2 l@3", "", ""}
		},
		"collapse keeps the place": func(s scenery) scene {
			return scene{queue.Policy{Tenant: s.leak()}, []queue.Job{named("a", "a"), named("old", "a", news), named("c", "a"), named("other", "b", news), named("new", "a", news)},
				"accepted accepted accepted accepted replaced", "a@0 other@1 new@2 c@3", "old:collapsed", ""}
		},
		"over: drop": func(s scenery) scene {
			return scene{queue.Policy{Tenant: s.leak(), User: []throttle.Rule{throttle.Window(2, time.Hour).OrDrop()}},
				[]queue.Job{named("a", "a"), named("b", "a"), named("c", "a"), named("d", "b")},
				"accepted accepted accepted accepted", "a@0 d@1 b@2", "c:rule", ""}
		},
		"capacity, drop_newest": func(s scenery) scene {
			return scene{queue.Policy{Tenant: s.leak(), Capacity: 2}, []queue.Job{named("a", "a"), named("b", "b"), named("c", "c")},
				"accepted accepted dropped", "a@0 b@1", "c:full", ""}
		},
		"capacity, drop_oldest": func(s scenery) scene {
			return scene{queue.Policy{Tenant: s.leak(), Capacity: 2, DropOldest: true},
				[]queue.Job{named("a", "a"), named("b", "b"), named("c", "a"), named("d", "a")},
				"accepted accepted accepted accepted", "c@0 d@1", "b:full a:full", ""}
		},
	}
}

// Every scene goes the same way in virtual time and on a real Redis, through either door.
func TestJobFeatures(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	all := scenes()
	for _, name := range sample.Draw(t, slices.Sorted(maps.Keys(all)), 2, 6) {
		paint := all[name]
		t.Run(name, func(t *testing.T) {
			for way, through := range doors() {
				t.Run(way, func(t *testing.T) {
					t.Parallel()
					onStages(t, func(t *testing.T, s stage) {
						lead := map[string]int{"lanes": 5, "asynq": 25}[way] // the inbox looks ten times a second
						for !inTime(t, s, lead, paint, through, way == "lanes") {
							if lead *= 2; lead > 200 {
								t.Fatal("the machine is too slow to offer a few jobs")
							}
							must(t, s.client.FlushAll(t.Context()).Err())
						}
					})
				})
			}
		})
	}
}

// inTime plays a scene. It reports false, and compares nothing, if its begin comes before all jobs are
// offered, or a job misses its slot: then it gets one after those of others.
func inTime(t *testing.T, s stage, lead int, paint func(scenery) scene, through door, straightOn bool) bool {
	at := scenery{s, time.Now().Add(s.units(lead)).Truncate(time.Microsecond), lead}
	sc := paint(at)
	setPolicies(t, s.client, policies(sc.policy))
	must(t, newInspector(t, s.client, "push").Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, Until: at.begin}))
	var got recorder
	metrics := prometheus.NewRegistry()
	stop := runWorker(t, s.client, &got, queue.WorkerConfig{Inbox: !straightOn, Registerer: metrics})
	defer stop()
	var receipts []string
	for _, j := range sc.jobs {
		receipts = append(receipts, string(through(t, s, j)))
	}
	if time.Now().After(at.begin) {
		return false
	}
	starts := strings.Fields(sc.starts)
	s.eventually(t, "all has started or was dropped", func() bool {
		return got.count() >= len(starts) && drained(t, s.client)()
	})
	if !s.virtual && gathered(t, metrics, "waterclock_late_starts_total") > 0 {
		return false
	}
	sc.check(t, at, &got, receipts, straightOn)
	return true
}

// check compares what becomes of the jobs. Only the straight door knows receipts, and
// brings jobs in time for their not_before.
func (sc scene) check(t *testing.T, s scenery, got *recorder, receipts []string, straightOn bool) {
	t.Helper()
	if straightOn && strings.Join(receipts, " ") != sc.receipts {
		t.Errorf("receipts %q, want %q", receipts, sc.receipts)
	}
	jobs := map[string]queue.Job{}
	for _, j := range sc.jobs {
		jobs[j.ID] = j
	}
	starts := strings.Fields(sc.starts)
	if got.count() != len(starts) {
		t.Fatalf("%d starts, want %q", got.count(), starts)
	}
	for i, start := range s.inOrder(got.all()) {
		sc.checkStart(t, s, starts[i], start, straightOn)
		if due := jobs[start.ID].NotBefore; start.Slot.Before(due) {
			t.Errorf("%s has a slot %v before its time", start.ID, due.Sub(start.Slot))
		}
	}
	want := sc.drops
	if !straightOn {
		want += sc.inbox
	}
	if drops := dropped(t, s.stage); drops != want {
		t.Errorf("dropped %q, want %q", drops, want)
	}
	if all := stats(t, s.client); all.Done+all.Dropped != all.Offered {
		t.Errorf("in the end: %+v", all)
	}
}

// inOrder returns starts in the order that the queue has decided: of their slots. Virtual time keeps
// it; in real time the machine may run a handler after one with a later slot.
func (s scenery) inOrder(starts []queue.Info) []queue.Info {
	if !s.virtual {
		slices.SortStableFunc(starts, func(a, b queue.Info) int { return a.Slot.Compare(b.Slot) })
	}
	return starts
}

// checkStart compares a start with "id@slot". Having waited is no attempt.
func (sc scene) checkStart(t *testing.T, s scenery, want string, got queue.Info, exact bool) {
	t.Helper()
	id, slot, _ := strings.Cut(want, "@")
	var units int
	fmt.Sscan(slot, &units)
	at := s.at(units)
	if strings.HasSuffix(slot, "+") {
		at = at.Add(grace)
	}
	s.virtual = s.virtual && exact
	if got.ID != id || s.wrong(got.Slot, at) || got.Attempt != 1 {
		t.Errorf("attempt %d of %s at %v, want %s", got.Attempt, got.ID, got.Slot.Sub(s.begin), want)
	}
}

// dropped lists the drops with their reasons, newest first.
func dropped(t *testing.T, s stage) string {
	t.Helper()
	drops, err := newInspector(t, s.client, "push").Drops(t.Context(), 10)
	must(t, err)
	var all []string
	for _, d := range drops {
		all = append(all, d.ID+":"+string(d.Reason))
	}
	return strings.Join(all, " ")
}
