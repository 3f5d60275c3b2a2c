package notify

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// What is left of a message yields if the user has it on another device, and if the trouble
// is not the device's own.
func TestYields(t *testing.T) {
	t.Parallel()
	has, gone := result{fate: delivered}, result{fate: unregistered}
	fails := func(name string) result { return result{fate: retried, route: route{name: name}} }
	waits, doubted := result{fate: held}, result{fate: retried, doubt: true}
	for name, test := range map[string]struct {
		stops   bool
		results []result
		want    bool
	}{
		"its provider is suspended":  {false, []result{has, waits}, true},
		"its provider is in doubt":   {false, []result{has, doubted}, true},
		"its provider is in trouble": {false, []result{has, fails("troubled")}, true},
		"one of two is":              {false, []result{has, fails("well"), fails("troubled")}, true},
		"it failed alone":            {false, []result{has, fails("well")}, false},
		"nobody knows":               {false, []result{has, fails("unknown")}, true},
		"nobody has the message":     {false, []result{fails("troubled"), waits, doubted}, false},
		"the others are gone":        {false, []result{gone, fails("troubled")}, false},
		"the worker stops":           {true, []result{has, waits}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bs := newBreakers()
				for name, devices := range map[string][]string{"troubled": {"a", "b"}, "unknown": {"a"}} {
					for _, device := range devices {
						bs.of(name, time.Now()).failures.add(device, time.Now())
					}
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				if test.stops {
					stop()
				}
				d := &delivery{handler: &handler{breakers: bs}}
				if got := d.yields(ctx, test.results); got != test.want {
					t.Errorf("%v, want %v", got, test.want)
				}
			})
		})
	}
}
