package leader

import (
	"container/heap"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A tenant's policy may say that a full backlog drops its oldest job (drop_oldest). An offer does not know which
// one that is: it writes a notice that the backlog is above its capacity, and the leader makes room.
//
//  1. The oldest waiting job is the first of some lane. A survey beside the rounds reads the first job of every
//     lane of the tenant, in short steps, and keeps the 100,000 lanes with the oldest ones in a heap
//     ([term.survey]).
//  2. Each round takes the lanes from the heap that may have the oldest jobs, reads their first jobs, and
//     drops the oldest of them ([term.trimTenant]). A lane's age is a lower bound: jobs that have left it since
//     only make it younger. So a job is the oldest if no other lane in the heap, and no lane outside of it,
//     has a lower bound before it.
//  3. A job that comes back into a lane is older than what the heap says of it: it is put in again ([term.aged]).
//  4. When the heap says nothing more, a new survey begins.
//
// A survey takes as long as it takes, and the backlog stays above its capacity meanwhile: jobs that are offered are
// accepted. Nothing else waits for it. Which job is the oldest is decided by stamps, so by the instants of offers; a job
// that was returned keeps its own.

// A trimmer finds the oldest waiting jobs of one tenant whose backlog drops its oldest job to
// make room. It holds the lanes by the ages of their first jobs, as a survey beside the rounds
// has found them.
type trimmer struct {
	lanes  stamps    // a lane is in it twice after a job has come back: the lower stamp comes first
	before string    // a lane that it does not hold has no job with an earlier stamp
	ready  bool      // the survey is done; until then lanes and before say nothing
	came   []stamped // came back into lanes during the survey
	used   int64     // when it was used last, in µs of Redis's clock
}

// stamps is a heap of lanes by the stamps of their first jobs, which are lower bounds.
type stamps []stamped

// stamped is a lane, and a stamp before which it has no job.
type stamped struct {
	stamp string
	lane  envelope.Lane
}

func (s stamps) Len() int           { return len(s) }
func (s stamps) Less(i, j int) bool { return s[i].stamp < s[j].stamp }
func (s stamps) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *stamps) Push(x any)        { *s = append(*s, x.(stamped)) }
func (s *stamps) Pop() any {
	old := *s
	last := old[len(old)-1]
	*s = old[:len(old)-1]
	return last
}

// The bounds of one round.
const (
	trimTenants = 50  // whose backlogs it looks at
	trimBatch   = 100 // jobs that it drops to make room
	looksEach   = 10  // lanes of a tenant that it looks at, if it drops fewer jobs than that
)

// trim drops the oldest jobs of tenants whose backlogs are above their capacity, where
// their policy says so. What does not fit into this round is left to the next ones.
func (t *term) trim(ctx context.Context, c *store.Commit, now int64) error {
	for _, name := range t.sched.Over() {
		t.full[name] = true
	}
	var names []string
	for name := range t.full {
		if names = append(names, name); len(names) == trimTenants {
			break
		}
	}
	if len(names) == 0 {
		return nil
	}
	waiting, err := queryOf(ctx, t, names, t.w.Store.Waiting)
	if err != nil {
		return err
	}
	r := &trimming{left: trimBatch}
	for i, name := range names {
		policy := t.sched.Policies().Of(name)
		over := int(waiting[i]) - policy.Capacity
		if !policy.DropOldest || policy.Capacity == 0 || over <= 0 {
			delete(t.full, name)
			continue
		}
		t.choose(r, name, over, now)
	}
	if len(r.lanes) == 0 {
		return nil
	}
	depth := max(headsEach, trimBatch/len(r.lanes))
	entries, err := queryOf(ctx, t, store.FirstPages(r.lanes, depth), t.w.Store.Heads)
	if err != nil {
		return err
	}
	heads, err := t.readHeads(ctx, r.lanes, entries)
	if err != nil {
		return err
	}
	for _, of := range r.tenants {
		of.depth = depth
		t.trimTenant(c, of, heads[of.first:of.first+len(of.lanes)], now)
	}
	return nil
}

// A trimming is what one round looks at: lanes of several tenants, whose first jobs are read together.
type trimming struct {
	left    int // how many jobs more it may drop
	tenants []trimmed
	lanes   []envelope.Lane
}

// A trimmed is a tenant in a trimming.
type trimmed struct {
	tr    *trimmer
	n     int // how many jobs to drop
	first int // its lanes among all
	lanes []stamped
	depth int // how many jobs of each were read
}

// choose chooses the lanes of a tenant that may have its oldest jobs, or begins a survey. While that is under way the
// tenant is not looked at: the survey puts it back into full when it is done. The lanes are taken out of the heap, and
// trimTenant puts them back; if an error comes in between, surveyAgain throws the heap away.
func (t *term) choose(r *trimming, name string, over int, now int64) {
	tr := t.trimmers[name]
	if tr == nil || tr.ready && tr.spent() {
		tr = &trimmer{}
		t.trimmers[name] = tr
		t.workers.Go(func() { t.survey(t.ctx, name, tr) })
	}
	tr.used = now
	if !tr.ready {
		delete(t.full, name) // until then
		return
	}
	n := min(over, r.left)
	if n == 0 {
		return
	}
	of := trimmed{tr: tr, n: n, first: len(r.lanes), lanes: tr.take(max(n, looksEach))}
	for _, s := range of.lanes {
		r.lanes = append(r.lanes, s.lane)
	}
	r.left -= n
	r.tenants = append(r.tenants, of)
}

// spent reports whether the trimmer does not know where the oldest job is.
func (tr *trimmer) spent() bool { return len(tr.lanes) == 0 || tr.lanes[0].stamp >= tr.before }

// take takes the n lanes out of the heap that are first, at most.
func (tr *trimmer) take(n int) (taken []stamped) {
	seen := make(map[envelope.Lane]bool, n)
	for len(taken) < n && !tr.spent() {
		s, _ := heap.Pop(&tr.lanes).(stamped)
		if !seen[s.lane] {
			seen[s.lane] = true
			taken = append(taken, s)
		}
	}
	return taken
}

// trimTenant drops the oldest of the first jobs of lanes, as far as no other lane can have an
// older one, and puts the lanes back into the heap.
func (t *term) trimTenant(c *store.Commit, of trimmed, heads [][]schedule.Head, now int64) {
	leaving := make([][]store.Leaving, len(heads))
	bound := of.tr.before
	if len(of.tr.lanes) > 0 {
		bound = min(bound, of.tr.lanes[0].stamp)
	}
	// next returns the lower bound of the next job of a lane, if there may be one: its own
	// stamp, if it was read.
	next := func(i int) (stamp string, read, there bool) {
		n := len(leaving[i])
		if read = n < len(heads[i]); read {
			return stampOf(heads[i][n]), true, true
		}
		if n < of.depth {
			return "", false, false
		}
		return stampOf(heads[i][n-1]), false, true
	}
	for range of.n {
		oldest, least := -1, bound
		for i := range heads {
			switch stamp, read, there := next(i); {
			case read && stamp < least:
				oldest, least = i, stamp
			case !read && there && stamp <= least:
				oldest, least = -1, stamp
			}
		}
		if oldest < 0 {
			break
		}
		h := heads[oldest][len(leaving[oldest])]
		leaving[oldest] = append(leaving[oldest], store.Leaving{Begin: h.Begin()})
		reason := schedule.Full
		if h.Env != nil && t.sched.CancelledAll(h.Env) {
			reason = schedule.Cancelled
		}
		(&inflight{t: t, c: c}).drop(schedule.Drop{Lane: of.lanes[oldest].lane, Head: h, Reason: reason}, now)
		if h.Env == nil {
			continue
		}
		for _, part := range h.Env.Parts() {
			t.sched.Step(now, schedule.IDDropped{ID: part.ID})
		}
	}
	for i, s := range of.lanes {
		if len(heads[i]) > 0 { // it is still the first if Redis refuses the commit
			heap.Push(&of.tr.lanes, stamped{stampOf(heads[i][0]), s.lane})
		}
		if len(leaving[i]) > 0 {
			c.Take(s.lane, leaving[i])
			t.sooner(c, s.lane, now) // the next one may cost less
			t.sched.Step(now, schedule.Changed{Lane: s.lane})
		}
	}
}

// stampOf returns when a job was offered. One that cannot be read goes before all others.
func stampOf(h schedule.Head) string {
	if h.Env == nil {
		return ""
	}
	return h.Env.Stamp
}

// surveyed is how many lanes a trimmer holds at most: those with the oldest jobs.
const surveyed = 100_000

// survey reads the first job of every lane of a tenant, and tells the rounds. It tries until Redis answers.
func (t *term) survey(ctx context.Context, name string, tr *trimmer) {
	trouble := retry.NewTrouble(t.w.Log, "looking for the oldest jobs")
	var lanes stamps
	var before string
	for {
		var err error
		if lanes, before, err = t.lanesByAge(ctx, name); ctx.Err() != nil {
			return
		}
		wait := trouble.After(err)
		if wait == 0 {
			break
		}
		retry.Pause(ctx, wait)
	}
	t.report(ctx, func(int64) {
		tr.lanes, tr.before, tr.ready = append(lanes, tr.came...), before, true
		tr.came = nil
		heap.Init(&tr.lanes)
		if t.trimmers[name] == tr && !tr.spent() {
			t.full[name] = true
		}
	})
}

// lanesByAge returns the lanes of a tenant with the oldest jobs. Other lanes have no job with a
// stamp before the returned one. It takes many short steps.
func (t *term) lanesByAge(ctx context.Context, name string) (lanes stamps, before string, err error) {
	meta, err := query(ctx, t, t.w.Store.Meta)
	if err != nil {
		return nil, "", err
	}
	before = meta.Stamp
	cut := func() {
		slices.SortFunc(lanes, func(a, b stamped) int { return strings.Compare(a.stamp, b.stamp) })
		if len(lanes) > surveyed {
			before = min(before, lanes[surveyed].stamp)
			lanes = slices.Clip(lanes[:surveyed])
		}
	}
	for place := (store.LaneScan{Tenant: name}); ; {
		began := time.Now()
		found, next, err := t.surveyStep(ctx, place)
		if err != nil {
			return nil, "", err
		}
		if lanes = append(lanes, found...); len(lanes) >= 2*surveyed {
			cut()
		}
		if place = next; place.Done {
			cut()
			return lanes, before, nil
		}
		retry.Pause(ctx, time.Since(began)) // Redis has others to serve
	}
}

// surveyStep reads the first jobs of some lanes. A lane that is empty by now has none.
func (t *term) surveyStep(ctx context.Context, place store.LaneScan) (lanes stamps, next store.LaneScan, err error) {
	found, next, err := queryBoth(ctx, t, place, t.w.Store.ScanLanes)
	if err != nil {
		return nil, next, err
	}
	heads, err := queryOf(ctx, t, store.FirstPages(found, 1), t.w.Store.Heads)
	if err != nil {
		return nil, next, err
	}
	read, err := t.readHeads(ctx, found, heads)
	if err != nil {
		return nil, next, err
	}
	for i, lane := range found {
		if len(read[i]) > 0 {
			lanes = append(lanes, stamped{stampOf(read[i][0]), lane})
		}
	}
	return lanes, next, nil
}

// aged tells the trimmer of a tenant that a job has come back into a lane, which may be older than what the trimmer
// knows of the lane. If the commit is refused the stamp is too low, which costs a look.
func (t *term) aged(lane envelope.Lane, stamp string) {
	tr := t.trimmers[lane.Tenant]
	switch {
	case tr == nil:
	case tr.ready:
		heap.Push(&tr.lanes, stamped{stamp, lane})
	default:
		tr.came = append(tr.came, stamped{stamp, lane})
	}
}

// surveyAgain forgets what is known of the oldest jobs: an error may have come after lanes were taken out of a heap.
func (t *term) surveyAgain() {
	for name := range t.trimmers {
		t.full[name] = true
	}
	clear(t.trimmers)
}

// trimmerKept is how long a trimmer is kept that nobody uses, in µs.
const trimmerKept = 60_000_000

// forgetTrimmers forgets the trimmers that were not used for long.
func (t *term) forgetTrimmers(now int64) {
	for name, tr := range t.trimmers {
		if now-tr.used > trimmerKept && !t.full[name] {
			delete(t.trimmers, name)
		}
	}
}
