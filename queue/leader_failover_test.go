package queue_test

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/inprocess"
	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A new leader reads the fronts of its indexes: not more with 20,000 lanes than with 400, nor
// with 10,000 tenants than with 800. Half a second and a little after the last one was killed,
// jobs start again.
func TestANewLeaderReadsTheFronts(t *testing.T) {
	t.Parallel()
	for name, test := range sample.Cases(t, map[string]struct{ few, fewTenants, many, manyTenants int }{
		"lanes":   {400, 4, 20_000, 4},
		"tenants": {800, 800, 10_000, 10_000},
	}, 0, 1) {
		t.Run(name, func(t *testing.T) {
			few, fewCommands := takeOver(t, test.few, test.fewTenants)
			many, manyCommands := takeOver(t, test.many, test.manyTenants)
			t.Logf("%d bytes and %d commands with few, %d bytes and %d commands with many", few, fewCommands, many, manyCommands)
			if many > 2*few || manyCommands > 2*fewCommands {
				t.Error("it reads much more")
			}
		})
	}
}

// takeOver kills the leader while so many lanes hold a job that is due, and returns how many
// bytes and commands it takes another worker until it starts the next job.
func takeOver(t *testing.T, lanes, tenants int) (bytes int64, commands int) {
	synctest.Test(t, func(t *testing.T) {
		server := newMini(t)
		p := policies(queue.Policy{})
		p.Queue = leakOf(1).Tenant
		setPolicies(t, redistest.MiniClient(t, server), p)
		producer := newClient(t, redistest.MiniClient(t, server), "push")
		for from := 0; from < lanes; from += 100 {
			var some []queue.Job
			for i := from; i < min(from+100, lanes); i++ {
				some = append(some, jobs(fmt.Sprint("t", i%tenants), fmt.Sprint("u", i), 1)...)
			}
			_, err := producer.Enqueue(t.Context(), some...)
			must(t, err)
			time.Sleep(time.Millisecond) // what is offered at one instant is read as a whole
		}

		lost, dead := make(chan struct{}), recorder{}
		runWorker(t, clientUntil(t, server, lost), &dead, queue.WorkerConfig{})
		time.Sleep(time.Second)
		var got recorder
		var counter redistest.Counter
		client, read := countingClient(t, server)
		client.AddHook(&counter)
		runWorker(t, hooked{client}, &got, queue.WorkerConfig{})
		time.Sleep(2500 * time.Millisecond) // half a second after a start
		before := got.count()
		counter.Take()
		begin := read.Load()
		close(lost)
		killed := time.Now()
		for got.count() == before && time.Since(killed) < time.Minute {
			time.Sleep(time.Millisecond)
		}
		bytes, commands = read.Load()-begin, counter.Take()
		if since := time.Since(killed); since > time.Second {
			t.Errorf("%d lanes: nothing starts for %v", lanes, since)
		}
	})
	return bytes, commands
}

// countingClient returns a client, and how many bytes it has read.
func countingClient(t *testing.T, server *miniredis.Miniredis) (*redis.Client, *atomic.Int64) {
	var read atomic.Int64
	client := redis.NewClient(inprocess.Options(func() (net.Conn, error) {
		conn, err := inprocess.Dial(server)
		return countingConn{conn, &read}, err
	}))
	t.Cleanup(func() { client.Close() })
	return client, &read
}

type countingConn struct {
	net.Conn
	read *atomic.Int64
}

func (c countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

// Redis knows until when a lane waits whose first job has started: a new leader does not have to
// find it out again. So it is whether a leader was told of the jobs, or found them when it came.
func TestALaneWaitsInItsIndex(t *testing.T) {
	t.Parallel()
	for _, idle := range []time.Duration{0, 10 * time.Second} {
		t.Run(fmt.Sprint("offered after ", idle), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				setPolicies(t, client, policies(queue.Policy{User: []throttle.Rule{throttle.Spacing(time.Hour)}}))
				var got recorder
				runWorker(t, client, &got, queue.WorkerConfig{})
				time.Sleep(idle)
				enqueue(t, client, jobs("t", "u", 2)...)
				time.Sleep(time.Minute)
				due, err := client.ZScore(t.Context(), "wc:{push}:due:t", "u").Result()
				must(t, err)
				if wait := time.UnixMicro(int64(due)).Sub(got.all()[0].Started); got.count() != 1 || wait < time.Hour {
					t.Errorf("%d starts; the lane's next job is due %v after the first", got.count(), wait)
				}
			})
		})
	}
}

// A worker that was alone is killed, and one takes its place: jobs start again within little more than a second, whenever in the lease
// of the dead one that was.
func TestTheSuccessorOfALoneWorker(t *testing.T) {
	t.Parallel()
	for after := range 8 {
		synctest.Test(t, func(t *testing.T) {
			server := newMini(t)
			setPolicies(t, redistest.MiniClient(t, server), policies(leakOf(100)))
			var got recorder
			lost := make(chan struct{})
			runWorker(t, clientUntil(t, server, lost), &got, queue.WorkerConfig{})
			time.Sleep(10*time.Second + time.Duration(after)*100*time.Millisecond)
			close(lost)
			killed := time.Now()
			time.Sleep(30 * time.Millisecond)
			client := redistest.MiniClient(t, server)
			runWorker(t, client, &got, queue.WorkerConfig{})
			enqueue(t, client, jobs("t", "u", 1)...)
			time.Sleep(5 * time.Second)
			for _, start := range got.all() {
				if since := start.Started.Sub(killed); since > 1100*time.Millisecond {
					t.Errorf("killed after %d00 ms: a job started %v after that", after, since)
				}
			}
			if n := got.count(); n != 1 {
				t.Errorf("killed after %d00 ms: %d have started", after, n)
			}
		})
	}
}
