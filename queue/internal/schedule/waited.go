package schedule

// A Wait says what a job waited for, from when it was ready until its slot, in µs. The parts follow each other: pauses have
// what was left of the wait when its rules allowed the job, and so on.
type Wait struct {
	Rules       int64
	Pauses      int64
	Concurrency int64 // until a concurrency limit was reached no more
	Places      int64 // until a worker had a free place for it, and it was its turn
	Blame       Blame // what held its subject back

	allowed int64 // when all that was looked at so far allowed the job
}

// allow notes that something else allows the job from an instant on, and returns for how long that has held it.
func (w *Wait) allow(at int64) (held int64) {
	held = max(0, at-w.allowed)
	w.allowed += held
	return held
}

// until returns the wait of a job that starts at an instant.
func (w Wait) until(slot int64) Wait {
	w.Places = w.allow(slot)
	return w
}

// Add adds another job's wait. Nobody is to blame for both.
func (w *Wait) Add(other *Wait) {
	w.Rules += other.Rules
	w.Pauses += other.Pauses
	w.Concurrency += other.Concurrency
	w.Places += other.Places
}

// A Blame says how long a rule, a concurrency limit or a pause held its subject back
// before a start: since its last start, or since the job was there. The zero value says that
// nothing did.
type Blame struct {
	Rule string
	For  int64
}

// longer blames something else that has held for longer.
func (b *Blame) longer(rule string, held int64) {
	if held > b.For {
		*b = Blame{rule, held}
	}
}
