package faults

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/doctor"
	"github.com/waterclock/waterclock/throttle"
)

// hit tells whether the harm came while the execution was under way, or so soon after
// it that its end was not known yet: acknowledgements take milliseconds, and longer
// where two cores are busy with a dozen processes.
func (h harm) hit(e *execution, slack time.Duration) bool {
	since := h.at
	if !h.forgot.IsZero() {
		since = h.forgot
	}
	return (h.worker == e.worker || h.forgets && h.about(e)) &&
		!e.began.After(h.at.Add(slack)) && (e.ended.IsZero() || !e.ended.Before(since.Add(-slack)))
}

// untold tells whether a worker could not tell how a job has ended, since the Redis that has it was away, until the worker was killed.
func (s *scene) untold(e *execution) bool {
	return slices.ContainsFunc(s.harm, func(away harm) bool {
		return away.worker == "" && away.about(e) && e.ended.After(away.at.Add(-s.slack)) && e.ended.Before(away.healed) &&
			slices.ContainsFunc(s.harm, func(h harm) bool {
				return h.worker == e.worker && h.at.After(e.ended) && h.at.Before(away.healed.Add(s.slack))
			})
	})
}

// about tells whether the harm was done to who has the job.
func (h harm) about(e *execution) bool { return h.tenants == nil || h.tenants[e.Tenant] }

// covers tells whether Redis may have forgotten what it said some time between two instants.
func (h harm) covers(a answer, slack time.Duration) bool {
	return !h.forgot.IsZero() && a.came.After(h.forgot.Add(-slack)) && a.asked.Before(h.at.Add(slack))
}

// since returns when the worker was lost, or when a fault that hit all was over.
func (h harm) since() time.Time {
	if h.worker != "" {
		return h.at
	}
	return later(h.at, h.healed)
}

// judge compares what was promised with what happened, and adds a row to the table.
func (s *scene) judge(name string) {
	executions := readJournals(s.t, s.journals())
	r := row{fault: name, times: len(s.harm), jobs: len(s.accepted)}
	r.lost = s.lost(executions)
	r.twice, r.recovery = s.twice(executions)
	r.violating = s.violations(executions)
	if s.lively && !slowed {
		r.violating += s.standstills(executions)
	}
	late := latest(executions)
	s.t.Logf("the machine ran what was due up to %v late", late)
	if again := s.resumed(executions); again > r.recovery {
		r.recovery = again
	}
	// A job that comes back may find the places of its tenant taken by long ones. It takes five steps of several
	// processes one after another, each of which the machine may run late: the muster that misses a beat, a reading
	// of claims, the commit, the message, the start. (A frozen worker is late by much more.)
	if limit := lease + 5*time.Second + long + s.longer + 5*min(late, time.Second); r.recovery > limit {
		s.t.Errorf("recovered after %v; want at most %v", r.recovery, limit)
	}
	s.listen(r.twice)
	s.examine()
	s.t.Log(r)
	results.add(r)
}

// examine asks the doctor of every queue what should not be there.
func (s *scene) examine() {
	for _, name := range s.queues() {
		found, err := doctor.Examine(s.t.Context(), s.client, name)
		if err != nil {
			s.t.Errorf("examining %s: %v", name, err)
		}
		for _, f := range found {
			s.t.Errorf("the doctor finds in %s: %+v", name, f)
		}
	}
}

// listen reads what the workers have said: of a running job that was lost where none was,
// and the same trouble again and again.
func (s *scene) listen(twice int) {
	const most = 100 // lines of trouble that a worker writes
	logs, err := filepath.Glob(filepath.Join(s.dir, "*.log"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err != nil {
			s.t.Fatal(err)
		}
		if n := bytes.Count(text, []byte("lost the lease of a running job")); n > 0 && twice == 0 && !s.forgets() {
			s.t.Errorf("%s has lost running jobs %d times, and none ran again", filepath.Base(name), n)
		}
		if n := bytes.Count(text, []byte("level=WARN")) + bytes.Count(text, []byte("level=ERROR")); n > most {
			s.t.Errorf("%s has written %d lines of trouble", filepath.Base(name), n)
		}
	}
}

// lost counts the accepted jobs of which nobody knows what became.
func (s *scene) lost(executions []*execution) (lost int) {
	known := make(map[string]bool)
	for _, e := range executions {
		known[e.ID] = true
	}
	for _, inspector := range s.inspectors {
		drops, err := inspector.Drops(s.t.Context(), 100_000)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, d := range drops {
			if d.Reason == "" {
				s.t.Errorf("%s was dropped without a reason", d.ID)
			}
			known[d.ID] = true
		}
		dead, err := inspector.Dead(s.t.Context(), "", 100_000)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, d := range dead {
			s.t.Errorf("%s is dead: %s", d.ID, d.Error)
			known[d.ID] = true
		}
	}
	for id, a := range s.accepted {
		forgotten := slices.ContainsFunc(s.harm, func(h harm) bool { return h.covers(a, s.slack) })
		if !known[id] && !forgotten {
			lost++
			s.t.Errorf("%s was accepted at %s, and neither started nor dropped; harm: %v", id, clock(a.came), s.harm)
		}
	}
	return lost
}

// twice counts the jobs that ran more than once, and returns how long after the fault
// the last of them ran again. Only those may that were in the hands of a worker that was
// killed or frozen: a start that was decided before its worker was stopped comes to its
// handler when it wakes.
func (s *scene) twice(executions []*execution) (twice int, recovery time.Duration) {
	before := make(map[string]*execution)
	for _, e := range executions {
		first := before[e.ID]
		before[e.ID] = e
		if first == nil {
			continue
		}
		twice++
		if s.frozen(e) { // it was decided first, and came to its handler last
			continue
		}
		i := slices.IndexFunc(s.harm, func(h harm) bool { return h.hit(first, s.slack) })
		if i < 0 && s.untold(first) {
			continue
		}
		if i < 0 {
			s.t.Errorf("%s ran again for no reason: at %s from %s to %s, then at %s from %s, decided at %s (attempt %d); harm: %v", e.ID,
				first.worker, clock(first.began), clock(first.ended), e.worker, clock(e.began), clock(e.Started), e.Attempt, s.harm)
			continue
		}
		// A job that was hit again before it could run again has lost a claim more.
		claims := max(1, e.Attempt-first.Attempt)
		recovery = max(recovery, e.began.Sub(s.harm[i].since())/time.Duration(claims))
	}
	return twice, recovery
}

// resumed returns how long it took at most, after a fault that hit all was over, until
// the next job started.
func (s *scene) resumed(executions []*execution) (longest time.Duration) {
	for _, h := range s.harm {
		if h.worker != "" {
			continue
		}
		next := slices.IndexFunc(executions, func(e *execution) bool { return h.about(e) && e.began.After(h.healed) })
		if next >= 0 {
			longest = max(longest, executions[next].began.Sub(h.healed))
		}
	}
	return longest
}

// A start may be written down so much later than it was decided without any trouble of the
// machine's.
const busy = 15 * time.Millisecond

// early is when the execution began at the earliest, by the machine's clock: it was written
// down at began.
func (s *scene) early(e *execution) time.Time {
	for _, h := range s.harm {
		if h.worker == e.worker && e.began.After(h.at) && e.began.Before(h.healed.Add(2*recent)) {
			return e.began.Add(-busy) // the pulse was stopped, too
		}
	}
	return e.began.Add(-busy - e.late)
}

// latest returns how late the machine was at most when a start was written down.
func latest(executions []*execution) (most time.Duration) {
	for _, e := range executions {
		most = max(most, e.late)
	}
	return most.Round(time.Millisecond)
}

// certain counts the starts that broke a rule by this machine's clock, however late any of
// them was written down.
func (s *scene) certain(executions []*execution) (found int) {
	users := make(map[string][]*execution)
	var all []*execution
	for _, e := range executions {
		if user := e.Tenant + "/" + e.User; !s.frozen(e) && !(s.stepped && s.disturbed(e.began)) {
			users[user] = append(users[user], e)
			all = append(all, e)
		}
	}
	for user, starts := range users {
		found += s.close(user, starts, s.userRules())
	}
	if s.parts > 0 { // see partitions_test.go
		return found
	}
	return found + s.close(queueName, all, s.queue)
}

// close counts the starts of a subject that broke a rule by this machine's clock.
func (s *scene) close(subject string, starts []*execution, rules []throttle.Rule) (found int) {
	for _, r := range rules {
		for i := r.Limit(); i < len(starts) && r.Kind() != throttle.KindLeak; i++ {
			if s.tooClose(r, starts[i-r.Limit():i+1]) {
				first, last := starts[i-r.Limit()], starts[i]
				found++
				s.t.Errorf("%s by the machine's clock: %s: %s at %s (%v late), then %s at %s", subject, r,
					first.ID, clock(first.began), first.late, last.ID, clock(last.began))
			}
		}
	}
	return found
}

// tooClose tells whether these starts, one more than the rule allows in a period, came
// within one for certain.
func (s *scene) tooClose(r throttle.Rule, starts []*execution) bool {
	last := starts[len(starts)-1]
	if r.Kind() != throttle.KindFixedWindow {
		return last.began.Sub(s.early(starts[0])) < r.Period()
	}
	period := last.began.Truncate(r.Period())
	return !slices.ContainsFunc(starts, func(e *execution) bool { return s.early(e).Before(period) })
}

// disturbed tells whether an instant, on either clock, lies in a harm that was done to all, or so
// soon behind it that the rules count what was before.
func (s *scene) disturbed(at time.Time) bool {
	return slices.ContainsFunc(s.harm, func(h harm) bool {
		for _, offset := range []time.Duration{0, h.before, h.after} {
			if from, to := h.at.Add(offset), h.healed.Add(offset+2*time.Second); h.worker == "" && at.After(from) && at.Before(to) {
				return true
			}
		}
		return false
	})
}

// violations counts the starts that broke a rule: of a user by when they started, on the
// clock that the worker believed in and on this machine's own, of a tenant by their slots.
func (s *scene) violations(executions []*execution) int {
	var starts, slots []throttle.Event
	paid := make(map[string]bool)
	for _, e := range executions {
		starts = append(starts, throttle.Event{Subject: e.Tenant + "/" + e.User, At: e.Started})
		// A job that came back since Redis forgot its end has paid for its slot once.
		if slot := fmt.Sprint(e.ID, e.Slot); !paid[slot] || !s.forgets() {
			slots = append(slots, throttle.Event{Subject: e.Tenant, At: e.Slot})
			paid[slot] = true
		}
		if e.Started.Before(e.Slot) && !(s.stepped && s.disturbed(e.Started)) { // a late job has paid by the clock before
			s.t.Errorf("%s started %v before its slot", e.ID, e.Slot.Sub(e.Started))
		}
	}
	found := append(throttle.Verify(starts, s.userRules()), throttle.Verify(slots, s.tenantRules())...)
	for _, r := range s.queue {
		if s.parts > 0 { // see partitions_test.go
			break
		}
		found = append(found, throttle.Verify(together(executions, r), []throttle.Rule{r})...)
	}
	found = slices.DeleteFunc(found, func(v throttle.Violation) bool { return s.stepped && s.disturbed(v.At) })
	for _, v := range found[:min(len(found), 10)] {
		s.t.Error(v)
	}
	return len(found) + s.certain(executions) + s.crowds(executions) + s.brokenByName(executions) + s.brokenAccount(executions) + s.brokenTogether(executions)
}

// together returns what a rule for everything counts: starts, or slots if it is a leak.
func together(executions []*execution, r throttle.Rule) []throttle.Event {
	events := make([]throttle.Event, len(executions))
	for i, e := range executions {
		events[i] = throttle.Event{Subject: queueName, At: e.Started}
		if r.Kind() == throttle.KindLeak {
			events[i].At = e.Slot
		}
	}
	return events
}

// crowds counts the executions that were too many at once, of a user or of a tenant, by this
// machine's clock. What a worker runs on with that was killed, frozen or forgotten runs
// beside what the limits are about.
func (s *scene) crowds(executions []*execution) int {
	var users, tenants []throttle.Run
	for _, e := range executions {
		if s.frozen(e) {
			continue
		}
		until := s.until(e)
		users = append(users, throttle.Run{Subject: e.Tenant + "/" + e.User, From: e.began, Until: until})
		tenants = append(tenants, throttle.Run{Subject: e.Tenant, From: e.began, Until: until})
	}
	found := append(throttle.VerifyConcurrency(users, userAtOnce), throttle.VerifyConcurrency(tenants, s.tenantAtOnce())...)
	for _, v := range found[:min(len(found), 10)] {
		s.t.Error(v)
	}
	if len(throttle.VerifyConcurrency(tenants, s.tenantAtOnce()-1)) == 0 {
		s.t.Logf("never %d of a tenant at once: the limit has not bound", s.tenantAtOnce())
	}
	return len(found)
}

// until is when an execution ended, or was no longer the queue's.
func (s *scene) until(e *execution) time.Time {
	until := e.ended
	for _, h := range s.harm {
		if h.hit(e, s.slack) && (until.IsZero() || until.After(h.at)) {
			until = later(h.at, e.began)
		}
	}
	return until
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// forgets tells whether Redis forgot something.
func (s *scene) forgets() bool {
	return slices.ContainsFunc(s.harm, func(h harm) bool { return h.forgets })
}

// frozen tells whether the worker was stopped between its decision to start a job and the
// handler's first line: nobody can do anything about that.
func (s *scene) frozen(e *execution) bool {
	return slices.ContainsFunc(s.harm, func(h harm) bool {
		return h.worker == e.worker && e.began.After(h.at) && e.Started.Before(h.at.Add(busy))
	})
}

func (h harm) String() string {
	return h.worker + " " + clock(h.at) + " to " + clock(h.healed)
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "(never)"
	}
	return t.Format("15:04:05.000")
}
