package runner

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue/internal/elect"
)

// A deputy looks after the leader as long as that lives, and keeps nothing of its looks.
func TestADeputyKeepsNothing(t *testing.T) {
	sample.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 2)
		kept := func() uint64 {
			var m runtime.MemStats
			for range 3 { // what pools keep, and what has a finalizer, outlives one collection
				runtime.GC()
			}
			runtime.ReadMemStats(&m)
			return m.HeapObjects
		}
		time.Sleep(time.Minute)
		before := kept()
		const minutes = 8
		time.Sleep(minutes * time.Minute)
		const looks = uint64(minutes * time.Minute / elect.Looks)
		if after := kept(); after > before+looks/2 {
			t.Errorf("%d objects more after about %d looks", after-before, looks)
		}
		s.end()
	})
}
