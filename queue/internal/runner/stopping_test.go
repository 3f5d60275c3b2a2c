package runner

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A job that waits for the answer to a late start when its worker stops is returned under the
// name that the answer gives it, whether that comes after the stop or at the same time. The
// worker would wait in vain for the return of the old name otherwise.
func TestAnAnswerComesAtAStop(t *testing.T) {
	for name, give := range map[string]func(r *Runner, old string, a answer){
		"after it": func(r *Runner, old string, a answer) {
			close(r.stop)
			synctest.Wait()
			r.takeWords([]string{wordLate, old, a.claim, text(a.slot), "0"})
		},
		"at the same time": func(r *Runner, old string, a answer) {
			r.letters.mu.Lock()
			defer r.letters.mu.Unlock()
			close(r.stop) // the job knows, and has not said yet that it waits no more
			r.letters.awaiting[envelope.ClaimedJob(old)].take(a)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				var l log
				r, old := asking(t, client, &l)
				slot := r.now() + 500_000
				another := envelope.Restarted(old, slot)
				give(r, old, answer{claim: another, slot: slot})
				time.Sleep(time.Second)
				if l.count() != 0 {
					t.Error("it has started")
				}
				if got := returnedClaims(t, r); !strings.Contains(got, another) {
					t.Errorf("returned: %q, want %q among them", got, another)
				}
			})
		})
	}
}

// returnedClaims returns the claims that were returned to the leader.
func returnedClaims(t *testing.T, r *Runner) string {
	_, letters, err := r.store.ReadMail(t.Context(), "0", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var claims []string
	for _, letter := range letters {
		if letter.Subject == store.MailReturn {
			claims = append(claims, store.Words(letter.Text)[1])
		}
	}
	return strings.Join(claims, "\n")
}

// A worker that stops waits for the acknowledgements that are on their way.
func TestTheLastEndsAreOnTheirWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		r, _, w := wired(t, &l)
		const claim = "a claim"
		w.server.HSet("wc:{q}:running:a", claim, ".job")
		r.claims.hold(claim)
		r.claims.done(end{claim: claim})
		w.intercept(func(cmd redis.Cmder, do func() error) error {
			if strings.HasPrefix(cmd.Name(), "eval") {
				time.Sleep(time.Second)
			}
			return do()
		})
		go r.claims.send(r.outlive)
		time.Sleep(100 * time.Millisecond)
		r.claims.flush(r.outlive)
		if left, _ := w.server.HKeys("wc:{q}:running:a"); len(left) > 0 || r.claims.untold() != 0 {
			t.Errorf("claims %q are left, %d ends are not confirmed", left, r.claims.untold())
		}
		time.Sleep(5 * time.Second)
	})
}
