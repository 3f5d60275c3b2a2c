package runner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/sample"
)

// sleep lets a machine sleep: it says and hears nothing, and its monotonic clock stands still.
func (a *actor) sleep(d time.Duration) {
	goOn := a.wire.hold()
	time.Sleep(d)
	a.worker.Clock.Shift(-d, 0) // the wall clock goes on
	goOn()
}

// Wall clocks of workers are set, or machines sleep, while jobs are offered: none is lost or runs
// twice, no rule is broken, and there are starts again a second later.
func TestClocksOfWorkersStep(t *testing.T) {
	t.Parallel()
	set := func(d time.Duration) func(a *actor) { return func(a *actor) { a.suspend(d) } }
	for name, trouble := range sample.Cases(t, map[string]func(a *actor){
		"a second forward":   set(time.Second),
		"a second back":      set(-time.Second),
		"an hour forward":    set(time.Hour),
		"an hour back":       set(-time.Hour),
		"sleeps a second":    func(a *actor) { a.sleep(time.Second) },
		"sleeps ten minutes": func(a *actor) { a.sleep(10 * time.Minute) },
	}, 0, 2) {
		for workers, who := range map[int]string{1: ", the only leader", 3: ", one of three"} {
			t.Run(name+who, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStage(t, workers)
					time.Sleep(2 * time.Second)
					flowing := make(chan struct{})
					go func() { s.flow(7 * time.Second); close(flowing) }()
					var woke []time.Time
					var slept []string
					for i := range 3 {
						time.Sleep(2*time.Second + time.Duration(i)*7*time.Millisecond)
						victim := s.workers[0]
						if i < 2 {
							victim = s.leader()
						}
						before := time.Now()
						trouble(victim)
						if woke = append(woke, time.Now()); time.Since(before) > 0 {
							slept = append(slept, victim.worker.Name) // what it ended it could not say
						}
					}
					<-flowing
					s.drain()
					s.judge(slept...)
					for _, at := range woke {
						if gap := s.gap(at, 1500*time.Millisecond); gap > 1100*time.Millisecond && len(s.offered) > 0 && at.Before(s.starts[len(s.starts)-1].at.Add(-1500*time.Millisecond)) {
							t.Errorf("no starts for %v", gap)
						}
					}
				})
			})
		}
	}
}
