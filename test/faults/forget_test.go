package faults

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
)

// lawless lets Redis lose the policies, and whoever leads under them. They are set again
// later.
func lawless(t *testing.T) *scene {
	_, at := plain(t)
	s := newScene(t, at)
	s.during(func() {
		for range 2 * s.rounds {
			s.pause(lease) // everybody has heard of them
			begin := time.Now()
			if err := s.client.Del(t.Context(), "wc:{"+queueName+"}:policies").Err(); err != nil {
				t.Error(err)
			}
			for _, victim := range slices.Clone(s.members)[1:] {
				s.harm = append(s.harm, harm{worker: victim.name, at: s.kill(victim)})
			}
			s.hire()
			s.hire()
			s.pause(2 * time.Second)
			s.setPolicies()
			s.harm = append(s.harm, harm{at: begin, healed: time.Now()})
		}
		s.crew.wait()
	})
	return s
}

// emptied lets Redis forget everything. What was accepted before is gone, and the rules
// begin anew with the policies that are set again; what runs ends, and nothing runs twice.
func emptied(t *testing.T) *scene {
	_, at := plain(t)
	s := newScene(t, at)
	begin := time.Now().Add(-time.Minute) // before the first offer
	s.during(func() {
		for range 2 * s.rounds {
			s.pause(s.between(lease/2, lease)) // everybody has heard of the policies
			flushed := time.Now()
			if err := s.client.FlushAll(t.Context()).Err(); err != nil {
				t.Error(err)
			}
			s.pause(1500 * time.Millisecond) // longer than any rule looks back
			s.setPolicies()
			s.harm = append(s.harm, harm{at: flushed, healed: time.Now(), forgets: true, forgot: begin})
		}
		s.pause(lease)
	})
	return s
}

// forgetful cuts off what a server has written to its AOF after an instant, as a machine
// does that loses its power, and lets it come back.
func forgetful(t *testing.T) *scene {
	dir := t.TempDir()
	server, at := plain(t, "--appendonly", "yes", "--appendfsync", "everysec", "--dir", dir)
	s := newScene(t, at)
	log := func() string {
		all, err := filepath.Glob(filepath.Join(dir, "appendonly*", "*.incr.aof"))
		if err != nil || len(all) != 1 {
			all, err = filepath.Glob(filepath.Join(dir, "*.aof")) // before Redis 7
		}
		if err != nil || len(all) != 1 {
			t.Fatalf("%q, %v", all, err)
		}
		return all[0]
	}
	s.during(func() {
		for range s.rounds {
			s.pause(s.between(100*time.Millisecond, time.Second))
			// A disk that is busy lets Redis keep what it has answered for: that is not what is
			// forgotten here.
			redistest.Eventually(t, 10*time.Second, "all is in the file", func() bool {
				return s.client.InfoMap(t.Context(), "persistence").Item("Persistence", "aof_buffer_length") == "0"
			})
			begin := time.Now()
			info, err := os.Stat(log())
			if err != nil {
				t.Fatal(err)
			}
			s.pause(time.Second)
			killed := time.Now()
			server.Kill()
			if err := os.Truncate(log(), info.Size()); err != nil {
				t.Fatal(err)
			}
			s.pause(1500 * time.Millisecond) // longer than any rule looks back
			server.Resume()
			s.harm = append(s.harm, harm{at: killed, healed: time.Now(), forgets: true, forgot: begin})
			s.pause(lease)
		}
	})
	return s
}

// laggard promotes a replica that has not heard of its master for a while.
func laggard(t *testing.T) *scene {
	sentinels := redistest.StartSentinels(t, durable...)
	s := newScene(t, on(sentinels.URL(), sentinels.Client(t)))
	s.during(func() {
		s.pause(s.between(100*time.Millisecond, time.Second))
		begin := time.Now()
		do(t, sentinels.Replica.Client(t), "REPLICAOF", "127.0.0.1", "1")
		s.pause(s.between(200*time.Millisecond, time.Second))
		killed := time.Now()
		sentinels.Master.Kill()
		sentinels.Failover(t)
		s.harm = append(s.harm, harm{at: killed, healed: time.Now(), forgets: true, forgot: begin})
		s.pause(lease)
		sentinels.Master.Resume()
		s.pause(lease)
	})
	return s
}

// resharded moves the queue's slot to another node while everybody works.
func resharded(t *testing.T) *scene {
	// A node that is short of CPU is not to be declared dead: that would be another fault.
	cluster := redistest.StartNodes(t, 2, append(durable, "--cluster-node-timeout", "15000")...)
	s := newScene(t, on(cluster.URL(), cluster.Client(t)))
	slot := s.client.ClusterKeySlot(t.Context(), "wc:{"+queueName+"}:").Val()
	s.during(func() {
		for range 2 * s.rounds {
			s.pause(s.between(100*time.Millisecond, time.Second))
			begin := time.Now()
			owner := cluster.Owner(t, "wc:{"+queueName+"}:meta")
			other := cluster.Nodes[0]
			if other == owner {
				other = cluster.Nodes[1]
			}
			move(t, slot, owner, other)
			s.harm = append(s.harm, harm{at: begin, healed: time.Now()})
			s.pause(lease / 2)
		}
	})
	return s
}

// move moves a slot with its keys, as redis-cli does.
func move(t *testing.T, slot int64, owner, other *redistest.Server) {
	ctx, from, to := t.Context(), owner.Client(t), other.Client(t)
	do(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.Do(ctx, "CLUSTER", "MYID").Val())
	do(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.Do(ctx, "CLUSTER", "MYID").Val())
	host, port, _ := net.SplitHostPort(other.Addr)
	for {
		keys, err := from.Do(ctx, "CLUSTER", "GETKEYSINSLOT", slot, 20).StringSlice()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		args := []any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}
		for _, key := range keys {
			args = append(args, key)
		}
		do(t, from, args...)
	}
	id := to.Do(ctx, "CLUSTER", "MYID").Val()
	do(t, to, "CLUSTER", "SETSLOT", slot, "NODE", id)
	do(t, from, "CLUSTER", "SETSLOT", slot, "NODE", id)
}

// do lets a server that has no time just now do something all the same.
func do(t *testing.T, server *redis.Client, args ...any) {
	t.Helper()
	var err error
	defer func() {
		if err != nil {
			t.Logf("%v: %v", args, err)
		}
	}()
	redistest.Eventually(t, 30*time.Second, fmt.Sprintf("%v is done", args[:min(len(args), 3)]), func() bool {
		err = server.Do(t.Context(), args...).Err()
		return err == nil
	})
}
