package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/inprocess"
	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A machine that has slept knows that it does not know the time, and asks Redis. A job that waits
// there for its slot and has missed it asks the leader, which takes it back. Where only the wall clock
// was set, back by an hour, the job starts.
func TestASuspendedMachine(t *testing.T) {
	for slept, starts := range map[time.Duration]int{0: 1, 100 * time.Millisecond: 1, time.Second: 0, time.Hour: 0, -time.Hour: 1} {
		t.Run(slept.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := inprocess.New()
				defer server.Close()
				client := redistest.MiniClient(t, server)
				wentOn := func() {
					if slept >= time.Second {
						server.SetTime(time.Now().Add(slept))
					}
				}
				var l log
				w, _ := beaten(t, client, &l)
				give := func(stamp string) (claim envelope.Claim) {
					env := envelope.Envelope{Stamp: stamp, Cost: 1, MaxAttempts: 3, Type: "x"}
					slot := w.Now() + 300_000
					claim = envelope.Claim{Stamp: env.Stamp, Lane: envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}, Slot: slot, Spent: slot}
					client.HSet(t.Context(), "wc:{q}:running:a", claim.String(), env.String())
					w.Accept(Given{Claim: claim, Job: env.String()})
					return claim
				}
				first := give("35d013b37e000")
				time.Sleep(looksAtClock * 3 / 4) // nobody looks at the clock before Redis's has gone on, too
				w.Clock.Shift(0, slept)
				wentOn()
				time.Sleep(500 * time.Millisecond)
				if l.count() != starts {
					t.Errorf("%d starts, want %d", l.count(), starts)
				}
				_, notices, err := w.Store.ReadNotices(t.Context(), "0", time.Second)
				if err != nil {
					t.Fatal(err)
				}
				returned := false
				for _, notice := range notices {
					returned = returned || notice.Subject == store.NoticeReturn
				}
				if returned != (starts == 0) {
					t.Errorf("returned: %v; notices %v", returned, notices)
				}
				client.HDel(t.Context(), "wc:{q}:running:a", first.String()) // the leader has taken it back
				wentOn()
				reading, err := w.Store.Clock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				w.Clock.Observe(reading)
				give("35d013b37e001")
				time.Sleep(500 * time.Millisecond)
				if l.count() != starts+1 {
					t.Errorf("%d starts, want one more", l.count())
				}
			})
		})
	}
}
