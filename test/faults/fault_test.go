package faults

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
)

// A fault is something that breaks.
type fault struct {
	name string
	run  func(t *testing.T) *scene // all of it, until everything has drained
}

var faults = []fault{
	{name: "kill -9 of a worker", run: killed},
	{name: "worker frozen for longer than a lease", run: frozen},
	{name: "SIGTERM to a worker", run: stopped},
	{name: "Redis killed, down for 3 s, AOF", run: restarted},
	{name: "master killed, sentinel failover", run: failedOver},
	{name: "cluster node killed, down for 2 s, AOF", run: clusterRestarted},
	{name: "cluster with replicas, master killed, durable offers", run: clusterFailedOver},
	{name: "connections cut", run: cut},
	{name: "connections delayed by up to 0.9 s", run: delayed},
	{name: "clocks an hour slow, kill -9 of a worker", run: func(t *testing.T) *scene { return wrongClock(t, time.Hour) }},
	{name: "clocks an hour fast, kill -9 of a worker", run: func(t *testing.T) *scene { return wrongClock(t, -time.Hour) }},
	{name: "connections torn", run: torn},
	{name: "connections torn, workers killed and frozen, scripts flushed", run: everything},
	{name: "SCRIPT FLUSH", run: flushed},
	{name: "Redis full for 4 s", run: full},
	{name: "workers 6, 30 and 60 ms from Redis, kill -9", run: far},
	{name: "replies delayed by up to 60 ms, requests not", run: func(t *testing.T) *scene { return oneWay(t, false) }},
	{name: "requests delayed by up to 60 ms, replies not", run: func(t *testing.T) *scene { return oneWay(t, true) }},
	{name: "leader starved of CPU", run: starved},
	{name: "rolling upgrade and back, kill -9", run: upgraded},
	{name: "FLUSHALL", run: emptied},
	{name: "worker frozen for less than a lease", run: dazed},
	{name: "worker frozen at the turn of a second, fixed_window", run: calendar},
	{name: "payloads of 1 MiB, kill -9 of a worker", run: heavy},
	{name: "policies lost for 2 s, kill -9 of a worker", run: lawless},
	{name: "Redis killed, the AOF's last second is lost", run: forgetful},
	{name: "master killed, its lagging replica promoted", run: laggard},
	{name: "the cluster slot moves to another node", run: resharded},
	{name: "an operator acts every 20 ms", run: stormed},
	{name: "Redis's clock a second forward, and back", run: func(t *testing.T) *scene { return stepping(t, time.Second, -time.Second) }},
	{name: "Redis's clock an hour forward", run: func(t *testing.T) *scene { return stepping(t, time.Hour) }},
	{name: "Redis's clock an hour back for 6 s", run: behind},
	{name: "older policies after a failover, kill -9 of the leader", run: outdated},
	{name: "twelve queues in one worker, kill -9", run: shared},
	{name: "two queues under shared limits, kill -9 of workers and Redis", run: underAccount},
	{name: "two queues and somebody outside use up a shared limit, kill -9", run: usedAccount},
	{name: "three limits by name, kill -9 of workers and Redis", run: byName},
	{name: "four partitions, kill -9 of workers and Redis", run: divided},
	{name: "four partitions, workers frozen, and who takes part spoilt", run: spoiltMembers},
	{name: "four partitions, places of the queue, kill -9 of workers and Redis", run: dividedPlaces},
	{name: "eight partitions on a cluster, kill -9 of leaders, slots move, a master killed", run: dividedCluster},
}

// All faults take some five minutes; usually six of them are drawn.
func TestFaults(t *testing.T) {
	for _, f := range sample.Draw(t, faults, 1, 4) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.run(t).judge(f.name)
		})
	}
}

// durable are the arguments of a server that forgets nothing it has answered for.
var durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

// on is a stage for 180 starts a second.
func on(url string, client redis.UniversalClient) stage {
	return stage{url: url, client: client, leak: 60, slack: 300 * time.Millisecond}
}

func plain(t *testing.T, args ...string) (*redistest.Server, stage) {
	server := redistest.Start(t, args...)
	return server, on(server.URL(), server.Client(t))
}

func killed(t *testing.T) *scene {
	_, at := plain(t)
	s := newScene(t, at)
	s.during(func() {
		for range 12 * s.rounds {
			s.pause(s.between(100*time.Millisecond, 700*time.Millisecond))
			victim := s.anyone()
			s.harm = append(s.harm, harm{worker: victim.name, at: s.kill(victim)})
			s.hire()
		}
		s.crew.wait()
	})
	return s
}

func frozen(t *testing.T) *scene {
	_, at := plain(t)
	s := newScene(t, at)
	s.during(func() {
		for range 3 * s.rounds {
			s.pause(s.between(100*time.Millisecond, 500*time.Millisecond))
			victim := s.anyone()
			s.freeze(victim, s.between(lease, lease+lease/2))
		}
	})
	return s
}

func stopped(t *testing.T) *scene {
	_, at := plain(t)
	s := newScene(t, at)
	s.during(func() {
		for range 5 * s.rounds {
			s.pause(s.between(100*time.Millisecond, 700*time.Millisecond))
			begin := time.Now()
			s.stop(s.anyone())
			s.harm = append(s.harm, harm{at: begin, healed: begin})
			s.hire()
		}
		s.crew.wait()
	})
	return s
}

// outage lets something be down for a while.
func (s *scene) outage(lasts time.Duration, down, up func()) {
	s.pause(s.between(100*time.Millisecond, time.Second))
	begin := time.Now()
	down()
	s.pause(lasts)
	up()
	s.harm = append(s.harm, harm{at: begin, healed: time.Now()})
	s.pause(lease / 4)
}

func restarted(t *testing.T) *scene {
	server, at := plain(t, durable...)
	s := newScene(t, at)
	s.during(func() {
		for range s.rounds {
			s.outage(3*time.Second, server.Kill, server.Resume)
		}
	})
	return s
}

func clusterRestarted(t *testing.T) *scene {
	cluster := redistest.StartNodes(t, 3, durable...)
	s := newScene(t, on(cluster.URL(), cluster.Client(t)))
	node := cluster.Owner(t, "wc:{"+queueName+"}:due")
	s.during(func() {
		for range s.rounds {
			s.outage(2*time.Second, node.Kill, node.Resume)
		}
	})
	return s
}

// Replication is asynchronous: what the old master did in its last moment may be undone.
// So an execution that was under way then may come again, as after a kill.
func failedOver(t *testing.T) *scene {
	sentinels := redistest.StartSentinels(t, durable...)
	s := newScene(t, on(sentinels.URL(), sentinels.Client(t)))
	s.during(func() {
		s.pause(s.between(100*time.Millisecond, time.Second))
		begin := time.Now()
		sentinels.Master.Kill()
		sentinels.Failover(t)
		s.harm = append(s.harm, harm{at: begin, healed: time.Now(), forgets: true})
		s.pause(lease)
		sentinels.Master.Resume() // it has to follow now, whatever it remembers
		s.pause(lease)
	})
	return s
}

// clusterFailedOver kills the master that has the queue, whose replica takes over. Offers wait for a replica: of what was
// accepted nothing is lost, whatever the replica had not heard of.
func clusterFailedOver(t *testing.T) *scene {
	cluster := redistest.StartNodes(t, 3, durable...)
	for _, master := range cluster.Nodes {
		cluster.StartReplica(t, master, durable...)
	}
	at := on(cluster.URL(), cluster.Client(t))
	at.durable = queue.Durability{Replicas: 1}
	s := newScene(t, at)
	const key = "wc:{" + queueName + "}:meta"
	master := cluster.Owner(t, key)
	s.during(func() {
		s.pause(s.between(100*time.Millisecond, time.Second))
		begin := time.Now()
		master.Kill()
		redistest.Eventually(t, 30*time.Second, "the replica is the master", func() bool {
			now, err := cluster.Client(t).MasterForKey(t.Context(), key)
			return err == nil && now.Options().Addr != master.Addr && now.HExists(t.Context(), key, "epoch").Val()
		})
		s.harm = append(s.harm, harm{at: begin, healed: time.Now(), forgets: true})
		s.pause(lease)
		master.Resume() // it follows now
		s.pause(lease)
	})
	return s
}

// proxied is a stage on which a bad network lies between the workers and Redis.
func proxied(t *testing.T, options string) (*redistest.Proxy, stage) {
	server, at := plain(t)
	proxy := redistest.StartProxy(t, server.Addr)
	at.url = "redis://" + proxy.Addr + "/0" + options
	return proxy, at
}

func cut(t *testing.T) *scene {
	proxy, at := proxied(t, "")
	s := newScene(t, at)
	s.during(func() {
		for range 10 * s.rounds {
			s.pause(s.between(50*time.Millisecond, 500*time.Millisecond))
			now := time.Now()
			proxy.Cut()
			s.harm = append(s.harm, harm{at: now, healed: now})
		}
		for range 4 * s.rounds {
			s.outage(s.between(100*time.Millisecond, lease), proxy.Down, proxy.Up)
		}
	})
	return s
}

// What a worker gave up waiting for arrives all the same, later: the delays are longer
// than its patience.
func delayed(t *testing.T) *scene {
	proxy, at := proxied(t, "?read_timeout=300ms&dial_timeout=300ms")
	s := newScene(t, at)
	s.during(func() {
		for range 6 * s.rounds {
			delay := s.between(20*time.Millisecond, 900*time.Millisecond)
			s.outage(s.between(200*time.Millisecond, lease/3),
				func() { proxy.Delay(delay) }, func() { proxy.Delay(0) })
		}
	})
	return s
}

// wrongClock lets Redis's clock differ from the workers'. The clocks of processes cannot
// be set here, and it takes two to differ: the in-process Redis is asked for its time
// over the network as any other. It is slow, above all under the race detector.
func wrongClock(t *testing.T, ahead time.Duration) *scene {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	begin := time.Now()
	server.SetTime(begin.Add(ahead))
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() {
		tick := time.NewTicker(500 * time.Microsecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			now := <-tick.C
			server.SetTime(begin.Add(ahead + now.Sub(begin))) // never backward
		}
	}()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	s := newScene(t, stage{url: "redis://" + server.Addr() + "/0", client: client, leak: 12, slack: time.Second})
	s.during(func() {
		for range 4 * s.rounds { // leases end on Redis's clock too
			s.pause(s.between(200*time.Millisecond, time.Second))
			victim := s.anyone()
			s.harm = append(s.harm, harm{worker: victim.name, at: s.kill(victim)})
			s.hire()
		}
		s.crew.wait()
	})
	return s
}

func flushed(t *testing.T) *scene {
	_, at := plain(t)
	s := newScene(t, at)
	s.during(func() {
		for range 10 * s.rounds {
			s.pause(s.between(50*time.Millisecond, 400*time.Millisecond))
			if err := s.client.ScriptFlush(t.Context()).Err(); err != nil {
				t.Error(err)
			}
			now := time.Now()
			s.harm = append(s.harm, harm{at: now, healed: now})
		}
	})
	return s
}

// A full Redis refuses offers and says why; it takes nothing back that it has accepted,
// and what was running runs on, for longer than a lease.
func full(t *testing.T) *scene {
	_, at := plain(t)
	s := newScene(t, at)
	limit := func(bytes string) func() {
		return func() {
			if err := s.client.ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
				t.Error(err)
			}
		}
	}
	s.during(func() {
		for range s.rounds {
			s.outage(lease+time.Second, func() {
				limit("1mb")()
				_, err := newClient(t, s.client, queueName).Enqueue(t.Context(), queue.Job{
					Tenant: "t", User: "u", Type: "push",
				})
				if err == nil || !strings.Contains(err.Error(), "OOM command not allowed") {
					t.Errorf("a full Redis refuses a job with %v", err)
				}
			}, limit("0"))
		}
	})
	return s
}
