package policies

import (
	"cmp"
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/queuetest"
)

// grace is how long after its slot a job of a queue may start: rates hold for slots.
const grace = 5 * time.Millisecond

// No promise is broken, each is used up by somebody, and who is not noisy waits as long as without the noise.
func TestInAQueue(t *testing.T) {
	for _, r := range sample.Draw(t, recipes, 1, 4) {
		t.Run(r.file, func(t *testing.T) {
			text := read(t, r.file)
			log, begin := inAQueue(t, r, text, r.traffic)
			broken, unused := judge(r.promises, log, grace)
			for _, b := range broken {
				t.Error(b)
			}
			for _, u := range unused {
				t.Errorf("%s: nobody has used it up", u)
			}
			calm := slices.DeleteFunc(slices.Clone(r.traffic), isNoisy)
			alone, began := inAQueue(t, r, text, calm)
			log = slices.DeleteFunc(log, func(s start) bool { return s.noisy })
			if len(alone) != len(calm) || len(log) != len(calm) {
				t.Errorf("of %d calm calls %d started beside noise, and %d without", len(calm), len(log), len(alone))
			}
			with, without := wait(log, begin), wait(alone, began)
			t.Logf("calm calls wait %v beside noise, %v without", with, without)
			const noticed = 10 * time.Millisecond
			if with > without+noticed+r.shared || without > 10*noticed {
				t.Errorf("calm calls wait %v beside noise, and %v without", with, without)
			}
		})
	}
}

func isNoisy(c call) bool { return c.noisy }

func read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// inAQueue offers traffic to a queue with policies, and returns what its handler has seen, and when the traffic began.
func inAQueue(t *testing.T, r recipe, policies string, traffic []call) (log []start, begin time.Time) {
	t.Helper()
	parsed, err := queue.ParsePolicies(r.file, []byte(policies))
	if err != nil {
		t.Fatal(err)
	}
	calls := make(map[string]call)
	for _, c := range traffic {
		calls[c.job.ID] = c
	}
	var mu sync.Mutex
	handler := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		at := time.Now()
		info, _ := queue.FromContext(ctx)
		c := calls[info.ID]
		time.Sleep(c.takes)
		mu.Lock()
		defer mu.Unlock()
		log = append(log, start{c, at, time.Now()})
		return nil
	})
	cfg := queuetest.Config{Policies: parsed, Handler: handler, Worker: queue.WorkerConfig{Concurrency: cmp.Or(r.places, 1000)}}
	queuetest.Run(t, cfg, func(_ *testing.T, q *queuetest.Queue) {
		q.Advance(time.Second)
		begin = time.Now()
		for _, together := range byInstant(traffic) {
			q.Advance(time.Until(begin.Add(together[0].after)))
			var jobs []queue.Job
			for _, c := range together {
				jobs = append(jobs, c.job)
			}
			q.Enqueue(jobs...)
		}
		q.Advance(time.Until(begin.Add(r.lasts)))
	})
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(log), begin
}

// byInstant returns calls that are offered together, in the order of time.
func byInstant(traffic []call) (groups [][]call) {
	traffic = slices.SortedStableFunc(slices.Values(traffic), func(a, b call) int { return cmp.Compare(a.after, b.after) })
	for i, c := range traffic {
		if i == 0 || c.after != traffic[i-1].after {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], c)
	}
	return groups
}
