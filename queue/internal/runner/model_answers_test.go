package runner

import (
	"strings"

	"github.com/waterclock/waterclock/queue/internal/clock"
)

// Two answers of a handler are no attempts: a pause, and that its worker cannot run the job. The judge asks for what they say.

// A rest says for how long the handler of a job has paused it.
type rest struct {
	scope     string
	at, until int64
}

// checkRested asks whether a job starts again before the pause is over that its own handler has asked for: the leader returns
// it in the commit with which the pause begins.
func (j *judge) checkRested(t *task, a Attempt) {
	slot := a.Slot - j.w.offset.Microseconds()
	if r := t.rest; slot < r.until && !t.doubtful && !t.oddly && j.quiet(r.at) {
		j.fail(t, "%s has a slot %v after its handler has paused %s, and %v before the end of that", t, clock.Micros(slot-r.at), r.scope, clock.Micros(r.until-slot))
	}
}

// wakes takes in that something may have ended the pauses of scopes that begin so, or their effect. Where a handler has paused a
// limit that does not count its job, its user is paused in place of that.
func (j *judge) wakes(scopes string) {
	for _, t := range j.tasks {
		if t.rest == (rest{}) {
			continue // as nearly all
		}
		if strings.HasPrefix(t.rest.scope, scopes) || strings.HasPrefix(scopesOf(t.lane)[2], scopes) {
			t.rest = rest{}
		}
	}
}

// A sitting says for how long a worker can run no job, as it has told a leader.
type sitting struct {
	since, until int64
	term         string // of the leader: others do not know
}

// sitsOut takes in that a worker has sent a job on.
func (j *judge) sitsOut(h *hired, until int64) {
	j.out[h] = sitting{clockNow(), until, j.w.term()}
	j.countPlaces()
}

// sitting returns the workers that may sit out. If all do, for certain, none does.
func (j *judge) sitting(now int64) map[*hired]bool {
	const notices = 200_000 // how long after its end the leader may see that
	out, others := map[*hired]bool{}, false
	for _, h := range j.w.alive() {
		until := j.out[h].until
		out[h], others = now < until+notices, others || now >= until
	}
	if !others {
		return nil
	}
	return out
}

// checkSentOn asks whether a job knows that its worker could not run it, and whether a worker gets a job that can run none,
// though another worker may.
func (j *judge) checkSentOn(t *task, h *hired, a Attempt, by gift) {
	if t.doubtful || t.oddly {
		return
	}
	if a.Job.SentOn != t.sentOn && j.quiet(t.ready) {
		j.fail(t, "%s starts, sent on: %v, want %v", t, a.Job.SentOn, t.sentOn)
	}
	const sure = 50_000
	out := j.out[h]
	if by.at < out.since+decided || by.at > out.until-sure || by.term != out.term || !j.quiet(out.since) {
		return
	}
	for _, other := range j.w.alive() {
		if s := j.out[other]; other != h && !other.held && !other.lost && by.at > s.until+decided {
			j.fail(t, "%s was given to %s, which can run no job for %v more, and %s has places", t, h.name, clock.Micros(out.until-by.at), other.name)
			return
		}
	}
}

// term returns the token of the leader by Redis's word.
func (w *world) term() string { return w.server.HGet("wc:{q}:meta", "leader") }
