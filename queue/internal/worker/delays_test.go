package worker

import (
	"testing"
	"testing/synctest"
	"time"
)

// The 99th percentile is that of the newest starts, and of the last minute alone.
func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d delays
		if got := d.p99(); got != 0 {
			t.Errorf("%v of nothing", got)
		}
		d.add(time.Hour)
		if got := d.p99(); got != time.Hour {
			t.Errorf("%v of one", got)
		}
		for i := range 3 * delaysKept { // the hour is forgotten
			d.add(time.Duration(i%100+1) * time.Millisecond)
		}
		if got := d.p99(); got != 99*time.Millisecond {
			t.Errorf("%v, want 99ms", got)
		}
		time.Sleep(delaysFor)
		if got := d.p99(); got != 0 {
			t.Errorf("%v a minute after", got)
		}
		d.add(time.Second)
		if got := d.p99(); got != time.Second {
			t.Errorf("%v, want that of the last minute", got)
		}
	})
}
