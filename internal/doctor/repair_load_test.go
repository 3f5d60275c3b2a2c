package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// Under load a key of the queue is overwritten for a while, or deleted. Offers fail with the key's
// name or are accepted. After the repair all that was accepted starts, and once the
// load is over the counters add up.
func TestRepairUnderLoad(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for name, make := range map[string]func(*testing.T, *scene){
		"meta, a text": spoil("meta"), "tenants, a text": spoil("tenants"), "notices, a text": spoil("notices"),
		"workers, a text": spoil("workers"), "later, a text": spoil("later"),
		"meta is gone": do("DEL", key("meta")), "tenants are gone": do("DEL", key("tenants")),
		"notices are gone": do("DEL", key("notices")), "workers are gone": do("DEL", key("workers")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repairUnderLoad(t, make)
		})
	}
}

func repairUnderLoad(t *testing.T, spoils func(*testing.T, *scene)) {
	s := newScene(t)
	s.policies()
	s.work(2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var accepted []string
	refused := 0
	var load sync.WaitGroup
	load.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			jobs := make([]queue.Job, 5)
			for i := range jobs {
				jobs[i] = queue.Job{ID: fmt.Sprintf("job-%d-%d", n, i), Tenant: fmt.Sprint("t", i), User: fmt.Sprint("u", n%7), Type: "x"}
			}
			receipts, err := s.offers.Enqueue(context.WithoutCancel(ctx), jobs...)
			mu.Lock()
			if err != nil {
				refused++
				if !errors.Is(err, queue.ErrBrokenKey) && !strings.Contains(err.Error(), "policies in force are missing") {
					t.Errorf("an offer: %v", err)
				}
			}
			for i, r := range receipts {
				if err == nil && r.Status == queue.Accepted {
					accepted = append(accepted, jobs[i].ID)
				}
			}
			mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	redistest.Eventually(t, 20*time.Second, "jobs start", func() bool { return s.total() > 100 })
	spoils(t, s)
	mu.Lock()
	known := len(accepted)
	mu.Unlock()
	redistest.Eventually(t, 20*time.Second, "many more offers have failed or were accepted", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return refused > 50 || len(accepted) > known+300
	})
	mended, left, err := s.keys.Repair(t.Context())
	s.must(err)
	before := s.total()
	redistest.Eventually(t, 20*time.Second, "jobs start again", func() bool { return s.total() > before+50 })
	cancel()
	load.Wait()
	redistest.Eventually(t, 30*time.Second, "all that was accepted has started", func() bool {
		return !slices.ContainsFunc(accepted, func(id string) bool { return s.started(id) == 0 })
	})
	_, _, err = s.keys.Repair(t.Context()) // counters that moved too fast to be counted before
	s.must(err)
	redistest.Eventually(t, 10*time.Second, "nothing waits", func() bool {
		stats, err := s.inspector.Stats(t.Context())
		return err == nil && stats.Waiting == 0 && stats.Running == 0
	})
	t.Logf("%d accepted, %d offers refused, %d starts; mended %d, left %d", len(accepted), refused, s.total(), len(mended), len(left))
	if _, left, err := s.keys.Repair(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
	if found := s.examine(); len(found) > 0 {
		t.Errorf("afterwards: %+v", found)
	}
}
