package worker

import (
	"context"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A mailbox is a list in Redis, into which commits of the leader write messages for one worker. It is only a
// way to be told soon: who has which claim is recorded in the worker's claims. So a message that is lost is
// found by a comparison ([Claims.Reconcile]), and one that comes again starts nothing.
//
// Messages may be lost when a connection breaks: Redis has taken one out of the list, and the reply does not
// arrive. That is why each error here is followed by a comparison, and why each wait is a short one: a
// connection that has died without a word brings nothing for as long as it is waited for.
//
// A message carries the instant at which it was written. A worker that is behind by more than the grace takes the
// other messages in the mailbox together: one by one each would cost a round trip.

// TakeMessages takes what the leader puts into this worker's mailbox, until ctx ends. It waits anew, by another connection,
// where the wait has taken too long: the connection may have died.
//
// A comparison may bring a job whose message has not come (missed). Either that is on its way, or the connection has
// died. So the worker puts a message of its own into its mailbox: that ends the wait soon if the connection is alive. A
// wait that is alive must never be left: it holds a connection of few, for as long as it waits.
func (w *Worker) TakeMessages(ctx context.Context) {
	trouble := retry.NewTrouble(w.Log, "waiting for jobs")
	for ctx.Err() == nil {
		err, ended := w.await(ctx)
		if !ended {
			continue
		}
		if wait := trouble.After(err); wait > 0 && ctx.Err() == nil {
			// What was on its way may be lost: Redis knows what is ours.
			retry.Pause(ctx, wait)
			w.compare(ctx)
		}
	}
}

// await takes the next message. It reports whether the wait has ended, rather than being given up. A wait that is given
// up goes on in its goroutine: if its connection lives after all, it takes its message as any other does.
func (w *Worker) await(ctx context.Context) (err error, ended bool) {
	taken := make(chan error, 1)
	go func() { taken <- w.takeNext(ctx) }()
	late := time.NewTimer(messagePatience + w.Patience())
	defer late.Stop()
	missed := w.missed
	for {
		select {
		case err := <-taken:
			return err, true
		case <-missed:
			missed = nil // once: the time does not begin anew
			go w.Nudge()
			late.Reset(2 * w.Patience()) // there and back
		case <-late.C:
			return nil, false
		}
	}
}

// takeNext waits for the next message, and does what it says. A message proves that Redis's clock has reached the
// instant that it carries.
func (w *Worker) takeNext(ctx context.Context) error {
	message, at, err := w.Store.Message(ctx, w.Name, messagePatience)
	if err != nil {
		return err
	}
	w.Clock.Reached(at)
	w.takeMessage(message)
	if at > 0 && w.Now()-at > schedule.Grace {
		for w.catchUp(ctx) {
		}
	}
	return nil
}

// takeAtOnce is how many messages a worker takes together that is behind.
const takeAtOnce = 100

// catchUp takes all that waits in the mailbox, and reports whether there was something: a worker far away
// gets one message in a round trip, and the leader writes more of them.
func (w *Worker) catchUp(ctx context.Context) bool {
	rest, err := w.Store.MoreMessages(ctx, w.Name, takeAtOnce)
	if err != nil && ctx.Err() == nil { // it may have taken some
		w.Log.Debug("catching up with the leader", "err", err)
		w.compare(ctx)
	}
	for _, message := range rest {
		w.takeMessage(message)
	}
	return len(rest) > 0
}

// takeMessage does what one message says. "!" only ends a wait, and "" says that nothing came.
func (w *Worker) takeMessage(message string) {
	switch message {
	case "", "!":
	case store.MessageLead:
		w.elector.Lead()
	default:
		w.takeWords(store.Words(message))
	}
}

// messagePatience is how long one wait lasts: whole seconds, as Redis takes them.
const messagePatience = 5 * time.Second

// wordsEach is how many words are about one thing.
const wordsEach = 3

// takeWords does what the words of a message say. Words of a later program that this one does not know are passed over.
func (w *Worker) takeWords(words []string) {
	for ; len(words) >= wordsEach; words = words[wordsEach:] {
		switch words[0] {
		case store.MessageJob, store.MessageNext:
			claim, _ := envelope.ParseClaim(words[1]) // a malformed one is ended
			w.Accept(Given{Claim: claim, Job: words[2], Awaited: words[0] == store.MessageNext})
		case store.MessageDeputy:
			w.elector.Appoint(words[1] == w.Name)
		}
	}
}
