package worker

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
		w, _, server := wired(t, &l)
		claim := envelope.Claim{Stamp: "a claim"}
		server.HSet("wc:{q}:running:a", claim.String(), "job")
		w.Claims.hold(claim, false)
		w.Claims.done(End{Claim: claim})
		server.intercept(func(cmd redis.Cmder, do func() error) error {
			if strings.HasPrefix(cmd.Name(), "eval") {
				time.Sleep(time.Second)
			}
			return do()
		})
		go w.Claims.send(w.outlive)
		time.Sleep(100 * time.Millisecond)
		w.Claims.flush(w.outlive)
		if left, _ := server.HKeys("wc:{q}:running:a"); len(left) > 0 || w.Claims.untold() != 0 {
			t.Errorf("claims %q are left, %d ends are not confirmed", left, w.Claims.untold())
		}
		time.Sleep(5 * time.Second)
	})
}
