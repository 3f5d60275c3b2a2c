package queue_test

import (
	"context"
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
	"github.com/waterclock/waterclock/queue"
)

// A new leader reads the fronts of its indexes: not more with 20,000 lanes than with 400. Half a
// second and a little after the last one was killed, jobs start again.
func TestANewLeaderReadsTheFronts(t *testing.T) {
	const tenants = 4
	few, fewCommands := takeOver(t, 400, tenants)
	many, manyCommands := takeOver(t, 20_000, tenants)
	t.Logf("%d bytes and %d commands with 400 lanes, %d bytes and %d commands with 20,000", few, fewCommands, many, manyCommands)
	if many > 2*few || manyCommands > 2*fewCommands {
		t.Error("it reads much more")
	}
}

// takeOver kills the leader while so many lanes hold a job that is due, and returns how many
// bytes and commands it takes another worker until it starts the next job.
func takeOver(t *testing.T, lanes, tenants int) (bytes int64, commands int) {
	synctest.Test(t, func(t *testing.T) {
		server := newMini(t)
		setPolicies(t, redistest.MiniClient(t, server), policies(leakOf(1)))
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
		runWorker(t, client, &got, queue.WorkerConfig{})
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
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:6379",
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			conn, err := inprocess.Dial(server)
			return countingConn{conn, &read}, err
		},
	})
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
