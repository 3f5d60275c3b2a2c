package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
)

func durableClient(t testing.TB, rdb redis.UniversalClient, d queue.Durability) *queue.Client {
	t.Helper()
	client, err := queue.NewClient(rdb, "push", queue.ClientConfig{Durability: d})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// offerFor offers jobs for a while, and returns the receipts and what stood in the way.
func offerFor(t testing.TB, d time.Duration, client *queue.Client, jobs ...queue.Job) ([]queue.Receipt, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return client.Enqueue(ctx, jobs...)
}

// What is accepted is on the replica by then. While the replica stands still nothing is, and a job that is there already
// is no exception: also a duplicate is one that the replica has to have.
func TestDurableOffersWaitForReplicas(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := master.StartReplica(t)
	rdb, copied := master.Client(t), replica.Client(t)
	durable, hasty := durableClient(t, rdb, queue.Durability{Replicas: 1}), newClient(t, rdb, "push")
	lane := func(user string) int64 { return copied.LLen(t.Context(), "wc:{push}:lane:school:"+user).Val() }

	for i := range sample.Size(20, 100, 1000) {
		receipts, err := durable.Enqueue(t.Context(), named("", "first"))
		must(t, err)
		if n := lane("first"); receipts[0].Status != queue.Accepted || n != int64(i+1) {
			t.Fatalf("receipt %d is %+v, and the replica has %d jobs", i+1, receipts[0], n)
		}
	}

	goOn := replica.Freeze()
	defer goOn()
	want := "only 0 of 1 replica has them"
	if receipts, err := offerFor(t, 3*time.Second, durable, named("new", "second")); err == nil || !strings.Contains(err.Error(), want) || len(receipts) > 0 {
		t.Errorf("a new job: %+v, %v; want: %s", receipts, err, want)
	}
	if receipts, err := hasty.Enqueue(t.Context(), named("old", "third")); err != nil || receipts[0].Status != queue.Accepted {
		t.Errorf("without durability: %+v, %v", receipts, err)
	}
	if receipts, err := offerFor(t, 3*time.Second, durable, named("old", "third")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a duplicate: %+v, %v; want: %s", receipts, err, want)
	}
	time.AfterFunc(700*time.Millisecond, goOn)
	receipts, err := durable.Enqueue(t.Context(), named("new", "second"), named("old", "third"), named("last", "third"))
	must(t, err)
	if receipts[0].Status != queue.Duplicate || receipts[1].Status != queue.Duplicate || receipts[2].Status != queue.Accepted {
		t.Errorf("afterwards: %+v", receipts)
	}
	if second, third := lane("second"), lane("third"); second != 1 || third != 2 {
		t.Errorf("the replica has %d and %d jobs, want 1 and 2", second, third)
	}
}

// Offers that wait for a replica take no connections from others: one is enough for all of them.
func TestOffersThatWaitTakeNothingFromOthers(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := master.StartReplica(t)
	rdb := redis.NewClient(&redis.Options{Addr: master.Addr, PoolSize: 3, PoolTimeout: 2 * time.Second, MaxRetries: -1})
	defer rdb.Close()
	durable := durableClient(t, rdb, queue.Durability{Replicas: 1})
	goOn := replica.Freeze()
	defer goOn()
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for i := range 100 {
		waiting.Go(func() {
			if receipts, err := durable.Enqueue(ctx, named("", fmt.Sprint("u", i))); err == nil {
				t.Errorf("without a replica: %+v", receipts)
			}
		})
	}
	for deadline := time.Now().Add(4 * time.Second); time.Now().Before(deadline); {
		if err := rdb.Ping(t.Context()).Err(); err != nil {
			t.Errorf("somebody else: %v", err)
			break
		}
	}
	cancel()
	waiting.Wait()
}

// A cluster asks the node that has the queue. Only the master of that slot has a replica here.
func TestDurableOffersOnACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartNodes(t, 3)
	rdb := cluster.Client(t)
	owner := cluster.Owner(t, "wc:{push}:meta")
	if receipts, err := offerFor(t, 3*time.Second, durableClient(t, rdb, queue.Durability{Replicas: 1}), named("a", "u")); err == nil {
		t.Errorf("no master has a replica, and yet: %+v", receipts)
	}
	replica := cluster.StartReplica(t, owner)
	receipts, err := durableClient(t, cluster.Client(t), queue.Durability{Replicas: 1}).Enqueue(t.Context(), named("b", "u"))
	must(t, err)
	follower := replica.Client(t)
	must(t, follower.ReadOnly(t.Context()).Err())
	n, err := follower.LLen(t.Context(), "wc:{push}:lane:school:u").Result()
	if err != nil || n != 2 || receipts[0].Status != queue.Accepted {
		t.Errorf("%+v, and the replica has %d jobs, %v", receipts, n, err)
	}
}

// What Redis cannot do it says, and how it could.
func TestDurabilityOnDisk(t *testing.T) {
	t.Parallel()
	old := func(rdb redis.UniversalClient) bool {
		return strings.Contains(rdb.Do(t.Context(), "WAITAOF", 0, 0, 1).String(), "unknown command")
	}
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "everysec")
	rdb := server.Client(t)
	disk := queue.Durability{Disk: true}
	receipts, err := durableClient(t, rdb, disk).Enqueue(t.Context(), named("a", "u"))
	if old(rdb) {
		if want := "want Redis 7.2 or later, or Valkey"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %+v, %v; want: %s", receipts, err, want)
		}
		t.Skip("this Redis is older than 7.2: only its error was looked at")
	}
	must(t, err)
	server.Kill()
	server.Resume()
	if n := rdb.LLen(t.Context(), "wc:{push}:lane:school:u").Val(); n != 1 || receipts[0].Status != queue.Accepted {
		t.Errorf("%+v; after a kill there are %d jobs", receipts, n)
	}
	without := redistest.Start(t).Client(t)
	if receipts, err := durableClient(t, without, disk).Enqueue(t.Context(), named("a", "u")); err == nil || !strings.Contains(err.Error(), "appendonly yes") {
		t.Errorf("without an append-only file: %+v, %v", receipts, err)
	}
	if receipts, err := offerFor(t, 3*time.Second, durableClient(t, rdb, queue.Durability{Disk: true, Replicas: 1}), named("b", "u")); err == nil ||
		!strings.Contains(err.Error(), "only 0 of 1 replica has them on disk") {
		t.Errorf("without a replica: %+v, %v", receipts, err)
	}
}

// The embedded Redis has no replicas.
func TestDurabilityWithoutReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := durableClient(t, redistest.Mini(t), queue.Durability{Replicas: 2})
		if receipts, err := offerFor(t, time.Second, client, named("a", "u")); err == nil || !strings.Contains(err.Error(), "only 0 of 2 replicas have them") {
			t.Errorf("%+v, %v", receipts, err)
		}
	})
}

func TestClientConfigIsChecked(t *testing.T) {
	t.Parallel()
	rdb := redistest.Mini(t)
	for want, config := range map[string][]queue.ClientConfig{
		"ClientConfig.Durability.Replicas is -1": {{Durability: queue.Durability{Replicas: -1}}},
		"2 configs; want at most one":            {{}, {}},
	} {
		if _, err := queue.NewClient(rdb, "push", config...); !errors.Is(err, queue.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; want: %s", config, err, want)
		}
	}
}

// A master dies at an instant at which its replica has been behind for a while, and the replica is promoted. Of what durable
// offers were accepted nothing is lost, and the producers go on as soon as there is a replica again. Without durability
// something is lost each time: the fault is one.
func TestAcceptedJobsOutliveTheirMaster(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	for name, durability := range map[string]queue.Durability{"durable": {Replicas: 1}, "not durable": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sentinels := redistest.StartSentinels(t)
			rdb := sentinels.Client(t)
			client := durableClient(t, rdb, durability)
			accepted := offering(t, client)
			some := 500 + sample.Rand(t, sample.SeedOf(t)).IntN(1500)
			redistest.Eventually(t, 30*time.Second, "some offers are accepted", func() bool { return accepted.count() > some })
			must(t, sentinels.Replica.Client(t).ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
			for i := range 50 { // by then the replica is behind
				_, err := newClient(t, rdb, "push").Enqueue(t.Context(), named(fmt.Sprint("other-", i), "u"))
				must(t, err)
			}
			sentinels.Master.Kill()
			before := accepted.count()
			sentinels.Failover(t)
			sentinels.Master.Resume()
			redistest.Eventually(t, 30*time.Second, "offers are accepted again", func() bool { return accepted.count() > before+100 })
			accepted.stop()

			lost, all := 0, accepted.ids()
			for len(all) > 0 {
				n := min(100, len(all))
				again := make([]queue.Job, n)
				for i, id := range all[:n] {
					again[i] = named(id, "u")
				}
				receipts, err := newClient(t, rdb, "push").Enqueue(t.Context(), again...)
				must(t, err)
				for _, r := range receipts {
					if r.Status != queue.Duplicate {
						lost++
					}
				}
				all = all[n:]
			}
			t.Logf("%d accepted, %d before the master was killed; %d lost", accepted.count(), before, lost)
			if durable := durability != (queue.Durability{}); durable && lost > 0 || !durable && lost == 0 {
				t.Errorf("%d of %d accepted jobs are lost", lost, accepted.count())
			}
		})
	}
}

// An acceptance is the IDs of jobs that some producers were told to be accepted.
type acceptance struct {
	mu   sync.Mutex
	all  []string
	stop func() // ends the producers
}

func (a *acceptance) count() int { return len(a.ids()) }

func (a *acceptance) ids() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all
}

// offering lets four producers offer, until they are stopped.
func offering(t *testing.T, client *queue.Client) *acceptance {
	ctx, cancel := context.WithCancel(t.Context())
	var producers sync.WaitGroup
	a := &acceptance{stop: func() { cancel(); producers.Wait() }}
	t.Cleanup(a.stop)
	for p := range 4 {
		producers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				batch := make([]queue.Job, 1+n%20)
				for i := range batch {
					batch[i] = named(fmt.Sprintf("%d-%d-%d", p, n, i), fmt.Sprint("u", i))
				}
				receipts, err := client.Enqueue(ctx, batch...)
				if err != nil && ctx.Err() == nil {
					t.Errorf("producer %d: %v", p, err)
				}
				a.mu.Lock()
				for i, r := range receipts {
					if r.Status == queue.Accepted || r.Status == queue.Duplicate {
						a.all = append(a.all, batch[i].ID)
					}
				}
				a.mu.Unlock()
			}
		})
	}
	return a
}

// forgetting empties Redis behind the first script that takes jobs in: so it is when their master fails before a replica has
// them, and the replica takes over.
type forgetting struct {
	once sync.Once
	rdb  *redis.Client
}

func (f *forgetting) DialHook(next redis.DialHook) redis.DialHook { return next }
func (f *forgetting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (f *forgetting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if name := cmd.Name(); err == nil && (name == "eval" || name == "evalsha") && f.rdb.Exists(ctx, "wc:{push}:lane:school:u").Val() == 1 {
			f.once.Do(func() { err = f.rdb.FlushAll(ctx).Err() })
		}
		return err
	}
}

// Jobs that were lost after they had been taken in, and before a replica had them, are taken in again.
func TestForgottenJobsAreOfferedAgain(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := master.StartReplica(t)
	rdb := master.Client(t)
	rdb.AddHook(&forgetting{rdb: master.Client(t)})
	receipts, err := durableClient(t, rdb, queue.Durability{Replicas: 1}).Enqueue(t.Context(), named("a", "u"))
	if n := replica.Client(t).LLen(t.Context(), "wc:{push}:lane:school:u").Val(); err != nil || receipts[0].Status != queue.Accepted || n != 1 {
		t.Errorf("%+v, %v, and the replica has %d jobs", receipts, err, n)
	}
}
