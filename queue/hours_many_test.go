package queue_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// Twenty thousand users of a tenant wait for one opening. Then the tenant's leak holds, a neighbour does not feel it, and each start costs
// Redis what it costs without hours.
func TestManyLanesOpenTogether(t *testing.T) {
	sample.WholeOnly(t)
	redistest.Slow(t)
	const lanes, perSecond, measured = 20_000, 400, 10 * time.Second
	server := redistest.Start(t)
	leak := throttle.Leak(perSecond, time.Second)
	cost, p99 := map[string]float64{}, map[string]time.Duration{}
	for _, scene := range []string{"alone", "calm", "user", "limit"} {
		client := server.Client(t)
		client.FlushAll(t.Context())
		opens := time.Now().Truncate(time.Minute).Add(time.Minute)
		if time.Until(opens) < 30*time.Second {
			opens = opens.Add(time.Minute)
		}
		hours := throttle.Hours(opens.UTC().Format("15:04")+"-"+opens.Add(time.Hour).UTC().Format("15:04"), "", "UTC")
		p := queue.Policies{Default: "crowd", Policies: map[string]queue.Policy{"crowd": {Tenant: []throttle.Rule{leak}}, "neighbour": {}}, Tenants: map[string]string{"neighbour": "neighbour"}}
		switch scene {
		case "user":
			p.Policies["crowd"] = queue.Policy{Tenant: []throttle.Rule{leak}, User: []throttle.Rule{hours}}
		case "limit":
			p.Limits = map[string]queue.Limit{"hours": {Types: []string{"crowd"}, Key: []string{"tenant", "user"}, Rules: []throttle.Rule{hours}}}
		}
		setPolicies(t, client, p)
		var all []queue.Job
		for i := range lanes {
			if scene != "alone" {
				all = append(all, typed(jobs("crowd", fmt.Sprint("u", i), 1), "crowd")...)
			}
		}
		for part := range slices.Chunk(all, 2000) {
			enqueue(t, client, part...)
		}
		var got recorder
		stop := runWorker(t, server.Client(t), &got, queue.WorkerConfig{})
		ready := time.Now().Add(5 * time.Second)
		if scene == "user" || scene == "limit" {
			ready = opens
		}
		redistest.Eventually(t, 3*time.Minute, "the hours are open", func() bool { return !time.Now().Before(ready) })
		before, n, began := commands(t, client), got.count(), time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), measured)
		for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-tick.C { // fifty a second
			enqueue(t, client, typed(jobs("neighbour", fmt.Sprint("n", time.Now().UnixNano()%50), 1), "neighbour")...)
		}
		cancel()
		took := time.Since(began)
		cost[scene] = float64(commands(t, client)-before) / float64(got.count()-n)
		stop()
		var delays []time.Duration
		var slots []throttle.Event
		for _, start := range got.all() {
			if start.Tenant == "neighbour" {
				delays = append(delays, start.Started.Sub(start.Slot))
				continue
			}
			slots = append(slots, throttle.Event{Subject: "crowd", At: start.Slot})
			if (scene == "user" || scene == "limit") && start.Started.Before(opens) {
				t.Errorf("%s: a start %v before the opening", scene, opens.Sub(start.Started))
			}
		}
		slices.Sort(delays)
		p99[scene] = delays[len(delays)*99/100]
		for _, v := range throttle.Verify(slots, []throttle.Rule{leak}) {
			t.Error(scene, v)
		}
		if want := int(took.Seconds() * perSecond); scene != "alone" && got.count()-n < want*95/100 {
			t.Errorf("%s: %d starts in %v, want %d", scene, got.count()-n, took, want)
		}
		t.Logf("%s: %d starts in %v, %.1f commands each; the neighbour's p99 is %v", scene, got.count()-n, took.Round(time.Millisecond), cost[scene], p99[scene])
	}
	for _, scene := range []string{"user", "limit"} {
		if cost[scene] > 1.2*cost["calm"] {
			t.Errorf("%s: %.1f commands a start, %.1f without hours", scene, cost[scene], cost["calm"])
		}
		if p99[scene] > p99["alone"]+2*time.Millisecond {
			t.Errorf("%s: the neighbour's p99 is %v, %v alone", scene, p99[scene], p99["alone"])
		}
	}
}
