package runner

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A worker asks Redis nothing between the slot of a job and its handler, whatever has happened to the job before. An answer
// that takes long would make the start later than the rules have counted it: a window of 300 would see 301 starts.
func TestAStartNeedsNoAnswer(t *testing.T) {
	for name, job := range map[string]envelope.Envelope{
		"never attempted":       {},
		"attempted before":      {Failures: 1},
		"its worker was lost":   {Lost: 1},
		"late before":           {Late: 1},
		"an ID":                 {ID: "id"},
		"a collapse key":        {CollapseKey: "key"},
		"an ID, a collapse key": {ID: "id", CollapseKey: "key"},
		"a payload kept apart":  {Spilled: "payload"},
	} {
		for _, at := range []string{"the leader", "another worker"} {
			t.Run(name+", "+at, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { startsWithoutAnswer(t, job, at == "the leader") })
			})
		}
	}
}

// startsWithoutAnswer offers two such jobs, a second apart by a rule. From shortly before the slot of the second one its
// worker gets no answers for a while.
func startsWithoutAnswer(t *testing.T, job envelope.Envelope, leads bool) {
	const apart, silence = time.Second, 60 * time.Millisecond
	s := newStage(t, 0)
	s.policies.Policies["p"] = schedule.Policy{User: rules.Compile(schedule.Grace*time.Microsecond, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: apart})}
	leader := s.join("leader")
	time.Sleep(time.Second)
	starter := leader
	if !leads {
		for leader.worker.Places.Take() { // all its places are taken
		}
		starter = s.join("another worker")
		time.Sleep(2 * time.Second)
	}
	s.handler = func(_ string, a Attempt) Outcome {
		next := time.UnixMicro(a.Slot + schedule.Grace).Add(apart)
		time.AfterFunc(time.Until(next.Add(-time.Millisecond)), func() { time.AfterFunc(silence, starter.wire.hold()) })
		return Outcome{}
	}
	s.offerTwo(job)
	time.Sleep(2 * time.Second)
	if n := s.attempts(); n != 2 {
		t.Errorf("%d of 2 jobs have started", n)
	}
	for _, start := range s.starts {
		if late := start.at.Sub(time.UnixMicro(start.slot)); start.worker != starter.worker.Name || late < 0 || late > schedule.Grace*time.Microsecond {
			t.Errorf("a handler of %s began %v after its slot; want at most %v, at %s", start.worker, late, schedule.Grace*time.Microsecond, starter.worker.Name)
		}
	}
	for leader.worker.Places.Free() < leader.worker.Places.All() {
		leader.worker.Places.Give()
	}
	s.end()
}

// offerTwo offers two jobs of one user that are like the given one.
func (s *stage) offerTwo(job envelope.Envelope) {
	st, err := store.New(s.client, "q")
	if err != nil {
		s.t.Fatal(err)
	}
	o := store.Offer{Batch: "two", Keep: time.Minute, Policies: 1, Tenants: []store.OfferTenant{{Name: "t"}}}
	for i := range 2 {
		e, own := job, fmt.Sprint(i)
		e.Cost, e.MaxAttempts, e.Priority, e.Type, e.Payload = 1, 100, envelope.Normal, "x", own
		offered := store.OfferJob{Lane: envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}}
		if e.ID != "" {
			e.ID += own
			offered.ID, offered.IDFor = e.ID, time.Hour
		}
		if e.CollapseKey != "" {
			e.CollapseKey += own
			offered.Collapse = e.CollapseKey
		}
		if e.Spilled != "" {
			e.Spilled += own
			offered.Spilled, offered.Payload, e.Payload = e.Spilled, []byte(own), ""
		}
		offered.Body = e.Body()
		o.Jobs = append(o.Jobs, offered)
	}
	if _, err := st.Offer(s.t.Context(), o); err != nil {
		s.t.Fatal(err)
	}
}
