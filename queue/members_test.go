package queue_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
)

// commandsEach returns how many commands clients send to Redis in a second, on average over some.
func commandsEach(t *testing.T, server *redistest.Server, during time.Duration) int {
	t.Helper()
	conn, err := net.Dial("tcp", server.Client(t).Options().Addr)
	must(t, err)
	defer conn.Close()
	_, err = fmt.Fprint(conn, "MONITOR\r\n")
	must(t, err)
	must(t, conn.SetReadDeadline(time.Now().Add(during)))
	n := 0
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if !strings.Contains(lines.Text(), " lua] ") { // those are parts of a script
			n++
		}
	}
	return int(float64(n) / during.Seconds())
}

// A hundred workers of a queue with 16 partitions ask little of Redis while there is nothing to do.
func TestIdleWorkersCostLittle(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	must(t, newInspector(t, client, "push").SetPolicies(t.Context(), queue.Policies{Partitions: 16}))
	for range 100 {
		runWorker(t, client, new(recorder), queue.WorkerConfig{})
	}
	each := 0
	for _, most := range []int{400, 160} { // when they have found their partitions; about 150 when leaders are calm
		redistest.Eventually(t, 40*time.Second, fmt.Sprintf("they send %d commands a second at most", most), func() bool {
			each = commandsEach(t, server, 3*time.Second)
			return each <= most
		})
	}
	t.Logf("%d commands a second", each)
}

// membersOfParts returns how many workers take part in each partition.
func membersOfParts(t *testing.T, client redis.UniversalClient, partitions int) (all []int) {
	t.Helper()
	now, err := client.Time(t.Context()).Result()
	must(t, err)
	for k := range partitions {
		n, err := client.ZCount(t.Context(), fmt.Sprintf("wc:{push/%d}:workers", k), fmt.Sprint(now.UnixMicro()), "+inf").Result()
		must(t, err)
		all = append(all, int(n))
	}
	return all
}

// A partition has three members, more while its jobs wait for places, and three again some time after that.
func TestMembersOfPartitions(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		const workers, partitions = 10, 8
		must(t, newInspector(t, client, "push").SetPolicies(t.Context(), queue.Policies{Partitions: partitions}))
		r := &recorder{then: func(context.Context, queue.Info) error { time.Sleep(time.Second); return nil }}
		for range workers {
			runWorker(t, client, r, queue.WorkerConfig{Concurrency: 1})
		}
		time.Sleep(10 * time.Second)
		threeEach := func(when string) {
			t.Helper()
			for k, n := range membersOfParts(t, client, partitions) {
				if n != 3 {
					t.Errorf("partition %d has %d members %s, want 3", k, n, when)
				}
			}
		}
		threeEach("at first")
		all, err := newWatcher(t, client, "push").Workers(t.Context())
		if must(t, err); len(all) != workers {
			t.Errorf("the watcher sees %d workers, want %d", len(all), workers)
		}

		_, err = newClient(t, client, "push").Enqueue(t.Context(), jobs("school", "teacher", 300)...)
		must(t, err)
		time.Sleep(10 * time.Second)
		before := r.count()
		time.Sleep(10 * time.Second)
		if n := r.count() - before; n < 9*workers {
			t.Errorf("%d jobs have started in ten seconds, want about %d: all places are used", n, 10*workers)
		}
		time.Sleep(4 * time.Minute)
		if stats := stats(t, client); stats.Done != 300 {
			t.Errorf("%+v", stats)
		}
		threeEach("after there was nothing to do for a while")
	})
}

// A worker that leaves a partition lets what it has begun there come to its end, and begins nothing more there.
func TestWhoLeavesAPartitionEndsItsJobs(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		const partitions = 4
		must(t, newInspector(t, client, "push").SetPolicies(t.Context(), queue.Policies{Partitions: partitions}))
		var ended atomic.Int64
		first := &recorder{then: func(ctx context.Context, _ queue.Info) error {
			select {
			case <-time.After(time.Minute):
				ended.Add(1)
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		runWorker(t, client, first, queue.WorkerConfig{ShutdownTimeout: time.Second})
		time.Sleep(2 * time.Second)
		all := tenantJobs(40, 40)
		_, err := newClient(t, client, "push").Enqueue(t.Context(), all...)
		must(t, err)
		time.Sleep(time.Second)
		var others recorder
		for range 11 {
			runWorker(t, client, &others, queue.WorkerConfig{})
		}
		time.Sleep(10 * time.Second)
		// Where the first worker ends its jobs it is a fourth member, which gets none.
		_, err = newClient(t, client, "push").Enqueue(t.Context(), tenantJobs(40, 400)...)
		must(t, err)
		time.Sleep(2 * time.Minute)
		if stats := stats(t, client); stats.Done != 440 || stats.Failed != 0 || stats.Dead != 0 {
			t.Errorf("%+v", stats)
		}
		if n := first.count() + others.count(); n != 440 || others.count() < 200 || ended.Load() < 40 {
			t.Errorf("%d attempts of 440 jobs, %d by the others; %d of the first worker's jobs have come to their end", n, others.count(), ended.Load())
		}
		for k, n := range membersOfParts(t, client, partitions) {
			if n != 3 {
				t.Errorf("partition %d has %d members, want 3", k, n)
			}
		}
	})
}

// If all members of a partition die at once others take their places within seconds. What the dead have claimed comes back at the end of
// their leases, as ever.
func TestAllMembersOfAPartitionDie(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newMini(t)
		client := redistest.MiniClient(t, server)
		const partitions = 8
		must(t, newInspector(t, client, "push").SetPolicies(t.Context(), queue.Policies{Partitions: partitions}))
		var r recorder
		lost := make(chan struct{})
		for k := range 8 {
			of := client
			if k < 5 { // those five are all members of some partition
				of = clientUntil(t, server, lost)
			}
			runWorker(t, of, &r, queue.WorkerConfig{Lease: 3 * time.Second})
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(20 * time.Second)
		close(lost)
		time.Sleep(100 * time.Millisecond)
		offered := time.Now()
		_, err := newClient(t, client, "push").Enqueue(t.Context(), tenantJobs(60, 60)...)
		must(t, err)
		time.Sleep(9 * time.Second)
		if n := r.count(); n != 60 {
			t.Errorf("%d of 60 jobs have started within %v", n, time.Since(offered))
		}
	})
}
