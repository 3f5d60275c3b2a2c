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

// The leader is told things by letters in a stream, the mail: clients write that a lane has its first job,
// workers that claims have ended or come back, operators that something has changed. This worker's own jobs write
// directly ([worker.Tray]). A goroutine reads the stream ([term.readMail]); the rounds take in what it has read.
//
// A letter is only a hint. What it says is in Redis before it is written, so that a letter that is read twice, or
// late, or by the next leader does no harm, and one that is lost delays something until the next look:
//
//   - Most letters make the scheduler look again ([term.open]).
//   - Requests are about one claim, and have their effect with a commit (requests.go).
//   - The commit that has the effects of all letters up to one notes that one's ID. A new leader reads on from
//     there ([store.Fence.Mail]).

// A post is what one reading of the mail brought.
type post struct {
	last    string
	letters []store.Letter
}

// readMail reads what the leader is told, until ctx ends: what comes in quick succession is read
// together.
func (t *term) readMail(ctx context.Context, after string) {
	trouble := retry.NewTrouble(t.w.Log, "reading the leader's mail")
	for ctx.Err() == nil {
		from := after // a try that was given up may still read it
		mail, err := retry.Persist(ctx, mailPatience+t.w.Patience(), func(ctx context.Context) (p post, err error) {
			p.last, p.letters, err = t.w.Store.ReadMail(ctx, from, mailPatience)
			return p, err
		})
		if wait := trouble.After(err); wait > 0 {
			retry.Pause(ctx, wait)
			continue
		}
		if len(mail.letters) == 0 {
			continue
		}
		after = mail.last
		select {
		case t.mail <- mail:
		case <-ctx.Done():
		}
		retry.Pause(ctx, gatherFor)
	}
}

// mailPatience is how long one wait for mail lasts: so long it takes to notice that the connection
// has died.
const mailPatience = time.Second

// gatherFor is the time between two readings of the mail, and between a commit and one for lanes
// that fall due. What comes in quick succession shares them; what comes alone does not wait.
const gatherFor = time.Millisecond

// wakeReader ends the wait for mail, with a letter that is about no claim.
func (t *term) wakeReader() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.w.Outlive()), time.Second)
	defer cancel()
	if err := t.w.Store.Write(ctx, store.Letter{Subject: store.MailFinished}); err != nil {
		t.w.Log.Debug("ending the wait for mail", "err", err)
	}
}

// receive opens what one reading of the mail brought.
func (t *term) receive(p post) {
	t.mailed = p.last
	t.open(p.letters)
}

// open takes in what the term is told. Some letters set an instant at which a round looks (ripeAt, musterAt),
// some a flag (stale, full): what they ask for is done in the next prelude.
func (t *term) open(letters []store.Letter) {
	now, _ := t.w.Clock.Now()
	for _, l := range letters {
		switch l.Subject {
		case store.MailFold:
			if lane, err := envelope.ParseLane(l.Text); err == nil {
				t.sched.Step(now, schedule.Changed{Tenant: lane.Tenant, User: lane.User})
			}
		case store.MailLater:
			t.ripeAt = min(t.ripeAt, number(l.Text))
		case store.MailFull:
			t.full[envelope.Unescape(l.Text)] = true
		case store.MailFinished:
			t.sched.Step(now, schedule.Ended(store.ParseFinished(l.Text)))
		case store.MailWorkers:
			t.musterAt = 0
		case store.MailPlaces:
			worker, places, _ := strings.Cut(l.Text, " ")
			t.fleet.has(worker, int(number(places)))
		case store.MailPolicies, store.MailPaused, store.MailRepaired:
			t.stale = true
		case store.MailCancel:
			t.sched.Step(now, schedule.IDCancelled{ID: l.Text})
		case store.MailTenant:
			t.sched.Step(now, schedule.Replaced{Tenant: envelope.Unescape(l.Text)})
		case store.MailReturn, store.MailRefund:
			if q, ok := readRequest(l); ok {
				t.requests = append(t.requests, q)
			} else {
				t.w.Log.Error("a malformed letter to the leader", "subject", l.Subject)
			}
		default:
			t.notice(l, now)
		}
	}
}

// notice takes in that a lane has got its first job.
func (t *term) notice(l store.Letter, now int64) {
	lane, err := envelope.ParseLane(l.Subject)
	if err != nil {
		return
	}
	if l.Text != "" && l.Text[0] == '=' { // the job is under its collapse key
		t.sched.Step(now, schedule.Changed{Tenant: lane.Tenant, User: lane.User})
		return
	}
	t.sched.Step(now, schedule.First{Lane: lane, Head: headOf(l.Text)})
}

// number reads what a letter says; what is malformed is 0.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
