package runner

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A worker that stops waits for the acknowledgements that are on their way.
func TestTheLastEndsAreOnTheirWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		r, _, w := wired(t, &l)
		claim := envelope.Claim{Stamp: "a claim"}
		w.server.HSet("wc:{q}:running:a", claim.String(), ".job")
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
