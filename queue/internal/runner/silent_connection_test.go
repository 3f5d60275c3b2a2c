package runner

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A connection of the leader dies without a word while it reads what a dead worker had. The jobs come back all the same,
// long before the client would give up waiting for the reply.
func TestASilentConnectionWhileJobsAreTakenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		var silent atomic.Int64
		s.join("leader").wire.intercept(func(cmd redis.Cmder, do func() error) error {
			if cmd.Name() == "hscan" && strings.Contains(fmt.Sprint(cmd.Args()...), "running:lost") && silent.Add(1) == 1 {
				time.Sleep(time.Minute)
			}
			return do()
		})
		time.Sleep(5 * time.Second)
		env := envelope.Envelope{Stamp: "35d013b37e000", Cost: 1, MaxAttempts: 3, Type: "x"}
		lane := envelope.Lane{Tenant: "t", User: "u", Priority: 1}
		s.server.HSet("wc:{q}:running:lost", envelope.Claim{Stamp: env.Stamp, Lane: lane, Slot: 1, Spent: 1}.String(), env.String())
		s.server.ZAdd("wc:{q}:workers", float64(time.Now().Add(-time.Second).UnixMicro()), "lost")
		time.Sleep(s.lease)
		if silent.Load() == 0 || s.server.Exists("wc:{q}:running:lost") || s.attempts() != 1 {
			t.Errorf("after a lease %d readings, and %d jobs have started; want the job taken back, and started", silent.Load(), s.attempts())
		}
		time.Sleep(2 * time.Minute)
		s.end()
	})
}

// The same happens while the bounds of lanes are lowered, since policies have changed.
func TestASilentConnectionWhileBoundsAreLowered(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"zscan", "zrangebyscore", "change"} {
		t.Run(lost, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 0)
				s.handler = func(string, Attempt) Outcome { return Outcome{} }
				var silent atomic.Int64
				leader := s.join("leader")
				time.Sleep(5 * time.Second)
				s.offer("u", 1)
				time.Sleep(time.Second)
				started := s.attempts()
				s.offerFarAhead("away", "u") // of a tenant that nobody has in memory
				leader.wire.intercept(func(cmd redis.Cmder, do func() error) error {
					keys := fmt.Sprint(cmd.Args()...)
					about := strings.Contains(keys, "wc:{q}:due:away") || strings.Contains(keys, "wc:{q}:tenants")
					switch {
					case lost == "change" && lowers(cmd): // it arrives, and the reply is lost
						err := do()
						if !redis.HasErrorPrefix(err, "NOSCRIPT") && silent.Add(1) == 1 {
							time.Sleep(time.Minute)
						}
						return err
					case cmd.Name() == lost && about && silent.Add(1) == 1:
						time.Sleep(time.Minute)
					}
					return do()
				})
				s.govern(2)
				time.Sleep(s.lease)
				if silent.Load() == 0 || s.attempts() != started+1 {
					t.Errorf("after a lease %d answers were lost, and %d jobs have started; want the one whose bound lay an hour ahead", silent.Load(), s.attempts()-started)
				}
				time.Sleep(2 * time.Minute)
				s.end()
			})
		})
	}
}
