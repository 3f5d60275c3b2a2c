package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Sentinels are a master with one replica, and three sentinels that watch them.
type Sentinels struct {
	Master, Replica *Server
	Addrs           []string // of the sentinels
}

// MasterName is what the sentinels call their master.
const MasterName = "main"

// StartSentinels starts all of them, the two servers with the extra arguments, and ends
// them with the test. A master that is silent for half a second is replaced.
func StartSentinels(t testing.TB, args ...string) *Sentinels {
	s := &Sentinels{Master: Start(t, args...)}
	host, port, _ := net.SplitHostPort(s.Master.Addr)
	s.Replica = s.Master.StartReplica(t, args...)
	const count = 3
	for range count {
		s.Addrs = append(s.Addrs, startSentinel(t, host, port))
	}
	for _, addr := range s.Addrs {
		Eventually(t, 20*time.Second, "every sentinel knows the others and the replica", func() bool {
			known := sentinelOf(addr)
			return known["num-slaves"] == "1" && known["num-other-sentinels"] == fmt.Sprint(count-1)
		})
	}
	return s
}

func startSentinel(t testing.TB, masterHost, masterPort string) (addr string) {
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s 2\nsentinel down-after-milliseconds %[1]s 1500\n"+
		"sentinel failover-timeout %[1]s 3000\n", MasterName, masterHost, masterPort)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return start(t, nil, func(port string) []string {
		return []string{config, "--sentinel", "--port", port, "--bind", "127.0.0.1", "--loglevel", "warning"}
	}).Addr
}

// sentinelOf returns what a sentinel knows of the master.
func sentinelOf(addr string) map[string]string {
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: addr})
	defer sentinel.Close()
	return sentinel.Master(context.Background(), MasterName).Val()
}

// Failover waits until the sentinels have made the replica the master.
func (s *Sentinels) Failover(t testing.TB) {
	_, port, _ := net.SplitHostPort(s.Replica.Addr)
	for _, addr := range s.Addrs {
		Eventually(t, 30*time.Second, "the replica is the master", func() bool {
			return sentinelOf(addr)["port"] == port
		})
	}
	replica := s.Replica.Client(t)
	Eventually(t, 10*time.Second, "the new master says so", func() bool {
		return strings.Contains(replica.Info(context.Background(), "replication").Val(), "role:master")
	})
}

// URL returns the sentinels as the commands take them.
func (s *Sentinels) URL() string {
	return "redis-sentinel://" + strings.Join(s.Addrs, ",") + "/0?master=" + MasterName
}

// Client returns a new client of whoever is the master.
func (s *Sentinels) Client(t testing.TB) *redis.Client {
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: MasterName, SentinelAddrs: s.Addrs})
	t.Cleanup(func() { client.Close() })
	return client
}
