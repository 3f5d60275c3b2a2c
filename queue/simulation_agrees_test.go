package queue_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/simulate"
	"github.com/waterclock/waterclock/throttle"
)

// The simulation agrees with a queue slot for slot. Where a user is due within the lead after
// an offer, a queue may have decided about it before it heard of the offer, and a swap of two
// moves those behind them: so a few may differ.
func TestSimulationAgrees(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	agrees(t, policies(queue.Policy{
		Tenant:   []throttle.Rule{throttle.Leak(20, time.Second)},
		User:     []throttle.Rule{throttle.Window(3, 10007*time.Millisecond), throttle.Spacing(1013 * time.Millisecond)},
		Capacity: 60, MaxWait: 15 * time.Second,
	}), bursts(t), 30)
}

// agrees plays offers in a queue and in the simulation, and compares what becomes of each job. So many of a thousand may differ.
func agrees(t *testing.T, p queue.Policies, bursts []burst, perMille int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, p)
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{Concurrency: 1000})
		time.Sleep(time.Second)
		var offered []simulate.Offer
		fates := make(map[string]queue.Reason)
		for _, burst := range bursts {
			time.Sleep(burst.after)
			for _, job := range burst.jobs {
				offered = append(offered, simulate.Offer{At: time.Now(), Job: job})
			}
			for _, receipt := range enqueue(t, client, burst.jobs...) {
				fates[receipt.ID] = receipt.Reason
			}
		}
		time.Sleep(5 * time.Minute)
		drops, err := newInspector(t, client, "push").Drops(t.Context(), 10_000)
		must(t, err)
		for _, d := range drops {
			fates[d.ID] = d.Reason
		}
		slots := make(map[string]time.Time)
		for _, s := range got.all() {
			slots[s.ID] = s.Slot
			for _, member := range s.Digest {
				slots[member.ID] = s.Slot
			}
		}
		simulated, err := simulate.Run(simulate.Config{Policies: p}, offered)
		must(t, err)
		differ, dropped := 0, 0
		for _, s := range simulated {
			if s.Reason != "" {
				dropped++
			}
			if s.Reason != fates[s.ID] || s.Slot.Sub(slots[s.ID]).Abs() > 2*time.Millisecond {
				if differ++; differ < 10 {
					t.Logf("%s of %s / %s offered at %v: simulated %q at %v, was %q at %v", s.ID, s.Tenant, s.User, s.At, s.Reason, s.Slot, fates[s.ID], slots[s.ID])
				}
			}
		}
		t.Logf("%d jobs, %d dropped, %d differ", len(simulated), dropped, differ)
		if differ > len(simulated)*perMille/1000 {
			t.Errorf("%d of %d differ", differ, len(simulated))
		}
		if dropped == 0 || dropped == len(simulated) {
			t.Errorf("%d dropped: the test shows nothing", dropped)
		}
	})
}

// A burst is what is offered at one instant.
type burst struct {
	after time.Duration // the one before
	jobs  []queue.Job
}

// offersVariable names a file of lines for producer whose payloads have an instant in seconds,
// to take instead of random jobs. Pauses of more than a second are shortened to that.
const offersVariable = "WATERCLOCK_TEST_OFFERS"

func bursts(t *testing.T) (all []burst) {
	if name := os.Getenv(offersVariable); name != "" {
		return burstsOf(t, name)
	}
	r := rand.New(rand.NewPCG(1, 2))
	n := 0
	for range 60 {
		b := burst{after: time.Duration(1+r.IntN(3)) * time.Second}
		for range 1 + int(r.ExpFloat64()*35) {
			b.jobs = append(b.jobs, queue.Job{ID: fmt.Sprint(n), Tenant: fmt.Sprint("t", r.IntN(3)), User: fmt.Sprint("u", r.IntN(40)), Type: "push"})
			n++
		}
		all = append(all, b)
	}
	return all
}

func burstsOf(t *testing.T, name string) (all []burst) {
	file, err := os.Open(name)
	must(t, err)
	defer file.Close()
	last := int64(0)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var line struct {
			Tenant, User string
			Payload      struct{ At int64 }
		}
		must(t, json.Unmarshal(lines.Bytes(), &line))
		if line.Payload.At != last {
			all = append(all, burst{after: time.Second})
			last = line.Payload.At
		}
		b := &all[len(all)-1]
		b.jobs = append(b.jobs, queue.Job{ID: fmt.Sprint(len(all), ".", len(b.jobs)), Tenant: line.Tenant, User: line.User, Type: "push"})
	}
	return all
}
