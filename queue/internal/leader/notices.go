package leader

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// The leader is told things by notices in a stream: clients write that a lane has its first job,
// workers that claims have ended or come back, operators that something has changed. This worker's own jobs write
// directly ([worker.Tray]). A goroutine reads the stream ([term.readNotices]); the rounds take in what it has read.
//
// A notice is only a hint. What it says is in Redis before it is written, so that a notice that is read twice, or
// late, or by the next leader does no harm:
//
//   - Most notices make the scheduler look again ([term.open]).
//   - Requests are about one claim, and have their effect with a commit (requests.go).
//   - The commit that has the effects of all notices up to one notes that one's ID. A new leader reads on from
//     there ([store.Fence.Notice]).
//   - The reader trims the stream every two seconds, up to the notice that a commit has noted. That one stays. If it is not there two
//     seconds later, the stream was deleted, or Redis has forgotten its newest entries. Notices that nobody has read may be lost with
//     them, so everything is read again ([term.tend]).

// A noticeBatch is what one reading of the notices brought.
type noticeBatch struct {
	last    string
	notices []store.Notice
	gone    bool // the stream is another one: notices may be lost
}

// noNotice is the ID from which a stream is read from its beginning.
const noNotice = "0"

// readNotices reads what the leader is told, from behind the notice with the given ID, until ctx ends, in a goroutine
// of its own. What comes in quick succession is read together. It reads ahead of the rounds by a few batches at most.
func (t *term) readNotices(ctx context.Context, after string) {
	trouble := retry.NewTrouble(t.w.Log, "reading the notices to the leader")
	kept, tended := after, time.Now()
	for ctx.Err() == nil {
		if time.Since(tended) >= tendEvery {
			tended = time.Now()
			if kept = t.tend(ctx, kept); kept == noNotice && after != noNotice {
				after = noNotice
				t.settled.Store(noNotice)
				t.pass(ctx, noticeBatch{last: after, gone: true})
			}
		}
		from := after // a try that was given up may still read it
		read, err := retry.Persist(ctx, noticePatience+t.w.Patience(), func(ctx context.Context) (p noticeBatch, err error) {
			p.last, p.notices, err = t.w.Store.ReadNotices(ctx, from, noticePatience)
			return p, err
		})
		if wait := trouble.After(err); wait > 0 {
			retry.Pause(ctx, wait)
			continue
		}
		if len(read.notices) == 0 {
			continue
		}
		if after = read.last; kept == noNotice {
			kept = after
		}
		t.pass(ctx, read)
		retry.Pause(ctx, gatherFor)
	}
}

// pass gives what was read to the rounds.
func (t *term) pass(ctx context.Context, read noticeBatch) {
	select {
	case t.batches <- read:
	case <-ctx.Done():
	}
}

// tend trims the stream up to the newest notice that a commit has noted, and returns that: it stays in the stream. It returns noNotice if
// the notice that was to stay so far is not there, and changes nothing while Redis does not answer.
func (t *term) tend(ctx context.Context, kept string) string {
	settled, _ := t.settled.Load().(string)
	if kept == noNotice {
		return noNotice
	}
	ctx, cancel := context.WithTimeout(ctx, t.w.Patience())
	defer cancel()
	there, err := t.w.Store.HasNotice(ctx, kept)
	switch {
	case err != nil:
		return kept
	case !there:
		return noNotice
	case settled == "" || settled == kept || settled == noNotice:
		return kept
	}
	if err := t.w.Store.TrimNotices(ctx, settled); err != nil {
		t.w.Log.Debug("trimming the notices", "err", err)
		return kept
	}
	return settled
}

// noticePatience is how long one wait for notices lasts: so long it takes to notice that the connection
// has died.
const noticePatience = time.Second

// tendEvery is how often the stream is trimmed, and looked for.
const tendEvery = 2 * time.Second

// gatherFor is the time between two readings of the notices, and between a commit and one for lanes
// that fall due. What comes in quick succession shares them; what comes alone does not wait.
const gatherFor = time.Millisecond

// wakeReader ends the wait for notices, with one that is about no claim.
func (t *term) wakeReader() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.w.Outlive()), time.Second)
	defer cancel()
	if err := t.w.Store.Write(ctx, store.Notice{Subject: store.NoticeFinished}); err != nil {
		t.w.Log.Debug("ending the wait for notices", "err", err)
	}
}

// receive opens what one reading has brought. From now on a commit that settles all requests may note the newest
// notice.
func (t *term) receive(p noticeBatch) {
	t.noticed = p.last
	t.unsure = t.unsure || p.gone
	t.open(p.notices)
}

// open takes in what the term is told. Some notices set an instant at which a round looks (ripeAt, musterAt), some a
// flag (stale, full), and some are collected (requests): what they ask for is done in the next prelude. All others are
// facts for the scheduler. A notice of a later program, with a subject that this one does not know, is passed over.
func (t *term) open(notices []store.Notice) {
	now, _ := t.w.Clock.Now()
	for _, l := range notices {
		switch l.Subject {
		case store.NoticeFold:
			if lane, err := envelope.ParseLane(l.Text); err == nil {
				t.sched.Step(now, schedule.Changed{Lane: lane})
			}
		case store.NoticeLater:
			t.ripeAt = min(t.ripeAt, number(l.Text))
		case store.NoticeFull:
			t.full[envelope.Unescape(l.Text)] = true
		case store.NoticeFinished:
			t.sched.Step(now, schedule.Ended(store.ParseFinished(l.Text)))
		case store.NoticeWorkers:
			t.musterAt = 0
		case store.NoticePlaces:
			worker, places, _ := strings.Cut(l.Text, " ")
			t.fleet.has(worker, int(number(places)))
		case store.NoticePolicies, store.NoticePaused:
			t.stale = true
		case store.NoticeLeases:
			t.leases.rung, t.leases.next = true, 0
		case store.NoticeRepaired:
			t.unsure = true
		case store.NoticeCancel:
			t.sched.Step(now, schedule.IDCancelled{ID: l.Text})
		case store.NoticeDropped:
			t.sched.Step(now, schedule.IDDropped{ID: l.Text})
		case store.NoticeTenant:
			t.sched.Step(now, schedule.Replaced{Tenant: envelope.Unescape(l.Text)})
		case store.NoticeClock:
			tenant, user, _ := strings.Cut(l.Text, ":")
			t.sched.Step(now, schedule.ClockSet{Tenant: envelope.Unescape(tenant), User: envelope.Unescape(user)})
		case store.NoticeLowered:
			t.sched.Step(now, schedule.Lowered{Tenant: envelope.Unescape(l.Text)})
		case store.NoticeReturn, store.NoticeRefund:
			if q, ok := readRequest(l); ok {
				t.requests = append(t.requests, q)
			} else {
				t.w.Log.Error("a malformed notice to the leader", "subject", l.Subject)
			}
		default:
			t.firstJob(l, now)
		}
	}
}

// firstJob takes in that a lane has got its first job. The notice brings the job, so that it need not be read.
func (t *term) firstJob(l store.Notice, now int64) {
	lane, err := envelope.ParseLane(l.Subject)
	if err != nil {
		return
	}
	if l.Text != "" && l.Text[0] == '=' { // the job is under its collapse key
		t.sched.Step(now, schedule.Changed{Lane: lane})
		return
	}
	t.sched.Step(now, schedule.First{Lane: lane, Head: headOf(l.Text)})
}

// number reads what a notice says; what is malformed is 0.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
