package faults

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock/throttle"
)

// An execution is one run of a handler.
type execution struct {
	start
	worker       string
	began, ended time.Time // on this machine's clock; ended is zero if it never did
}

// readJournal returns the executions in the order in which they began.
func readJournal(t testing.TB, name string) []*execution {
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	runs := make(map[string]*execution)
	var all []*execution
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Errorf("%v in %s", err, lines.Text())
			continue
		}
		if l.Start == nil {
			runs[l.Run].ended = l.At
			continue
		}
		e := &execution{start: *l.Start, worker: l.Worker, began: l.At}
		runs[l.Run] = e
		all = append(all, e)
	}
	slices.SortStableFunc(all, func(a, b *execution) int { return a.began.Compare(b.began) })
	return all
}

// hit tells whether the harm came while the execution was under way, or so soon after
// it that its end was not known yet: acknowledgements take milliseconds, and longer
// where two cores are busy with a dozen processes.
func (h harm) hit(e *execution, slack time.Duration) bool {
	since := h.at
	if !h.forgot.IsZero() {
		since = h.forgot
	}
	return (h.worker == e.worker || h.forgets) &&
		!e.began.After(h.at.Add(slack)) && (e.ended.IsZero() || !e.ended.Before(since.Add(-slack)))
}

// covers tells whether Redis may have forgotten what it said at an instant.
func (h harm) covers(at time.Time, slack time.Duration) bool {
	return !h.forgot.IsZero() && at.After(h.forgot.Add(-slack)) && at.Before(h.at.Add(slack))
}

// judge compares what was promised with what happened, and adds a row to the table.
func (s *scene) judge(name string) {
	executions := readJournal(s.t, s.settings.Journal)
	r := row{fault: name, times: len(s.harm), jobs: len(s.accepted)}
	r.lost = s.lost(executions)
	r.twice, r.recovery = s.twice(executions)
	r.violating = s.violations(executions)
	if again := s.resumed(executions); again > r.recovery {
		r.recovery = again
	}
	// A job that comes back may find the places of its tenant taken by long ones.
	if limit := lease + 5*time.Second + long + s.longer; r.recovery > limit {
		s.t.Errorf("recovered after %v; want at most %v", r.recovery, limit)
	}
	s.listen(r.twice)
	s.t.Log(r)
	results.add(r)
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
	drops, err := s.inspector.Drops(s.t.Context(), 100_000)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, d := range drops {
		if d.Reason == "" {
			s.t.Errorf("%s was dropped without a reason", d.ID)
		}
		known[d.ID] = true
	}
	dead, err := s.inspector.Dead(s.t.Context(), 100_000)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, d := range dead {
		s.t.Errorf("%s is dead: %s", d.ID, d.Error)
		known[d.ID] = true
	}
	for id, at := range s.accepted {
		forgotten := slices.ContainsFunc(s.harm, func(h harm) bool { return h.covers(at, s.slack) })
		if !known[id] && !forgotten {
			lost++
			s.t.Errorf("%s was accepted at %s, and neither started nor dropped; harm: %v", id, clock(at), s.harm)
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
		if i < 0 {
			s.t.Errorf("%s ran again for no reason: at %s from %s to %s, then at %s from %s, decided at %s (attempt %d); harm: %v", e.ID,
				first.worker, clock(first.began), clock(first.ended), e.worker, clock(e.began), clock(e.Started), e.Attempt, s.harm)
			continue
		}
		// A job that was hit again before it could run again has lost a claim more.
		claims := max(1, e.Attempt-first.Attempt)
		recovery = max(recovery, e.began.Sub(s.harm[i].at)/time.Duration(claims))
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
		next := slices.IndexFunc(executions, func(e *execution) bool { return e.began.After(h.healed) })
		if next >= 0 {
			longest = max(longest, executions[next].began.Sub(h.healed))
		}
	}
	return longest
}

// A start is written down so much later than it was decided, at most, on a busy machine.
const busy = 15 * time.Millisecond

// loosely are rules of users for starts by this machine's own clock.
func loosely(strict []throttle.Rule) (loose []throttle.Rule) {
	for _, r := range strict {
		switch r.Kind() {
		case throttle.Spacing(1).Kind():
			loose = append(loose, throttle.Spacing(r.Period()-busy))
		case throttle.FixedWindow(1, 1).Kind():
			loose = append(loose, r) // see turned
		default:
			loose = append(loose, throttle.Window(r.Limit(), r.Period()-busy))
		}
	}
	return loose
}

// turned tells whether a start that was written down then may belong to the period before,
// by which a rule counts.
func turned(at time.Time, strict []throttle.Rule) bool {
	return slices.ContainsFunc(strict, func(r throttle.Rule) bool {
		return r.Kind() == throttle.FixedWindow(1, 1).Kind() && at.Sub(at.Truncate(r.Period())) < busy
	})
}

// violations counts the starts that broke a rule: of a user by when they started, on the
// clock that the worker believed in and on this machine's own, of a tenant by their slots.
func (s *scene) violations(executions []*execution) int {
	var starts, slots, truth []throttle.Event
	paid := make(map[string]bool)
	for _, e := range executions {
		starts = append(starts, throttle.Event{Subject: e.Tenant + "/" + e.User, At: e.Started})
		if !s.frozen(e) && !turned(e.began, s.userRules()) {
			truth = append(truth, throttle.Event{Subject: e.Tenant + "/" + e.User + " by the machine's clock", At: e.began})
		}
		// A job that came back since Redis forgot its end has paid for its slot once.
		if slot := fmt.Sprint(e.ID, e.Slot); !paid[slot] || !s.forgets() {
			slots = append(slots, throttle.Event{Subject: e.Tenant, At: e.Slot})
			paid[slot] = true
		}
		if e.Started.Before(e.Slot) {
			s.t.Errorf("%s started %v before its slot", e.ID, e.Slot.Sub(e.Started))
		}
	}
	found := append(throttle.Verify(starts, s.userRules()), throttle.Verify(slots, s.tenantRules())...)
	found = append(found, throttle.Verify(truth, loosely(s.userRules()))...)
	for _, v := range found[:min(len(found), 10)] {
		s.t.Error(v)
	}
	return len(found) + s.crowds(executions)
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
		until := e.ended
		for _, h := range s.harm {
			if h.hit(e, s.slack) && (until.IsZero() || until.After(h.at)) {
				until = later(h.at, e.began)
			}
		}
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
