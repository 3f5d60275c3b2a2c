package redistest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// slots is how many hash slots a Redis Cluster has.
const slots = 16384

// StartCluster starts a Redis Cluster of that many masters, ends it with the test, and
// returns a client of it. Where there is no redis-server the test is skipped.
func StartCluster(t testing.TB, nodes int) *redis.ClusterClient {
	t.Helper()
	ctx := context.Background()
	servers := make([]*Server, nodes)
	addrs := make([]string, nodes)
	for i := range servers {
		servers[i] = Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "5000",
			"--cluster-port", strconv.Itoa(freePort(t)))
		addrs[i] = servers[i].Addr
	}
	for i, server := range servers {
		node := server.Client(t)
		if err := node.ClusterAddSlotsRange(ctx, i*slots/nodes, (i+1)*slots/nodes-1).Err(); err != nil {
			t.Fatalf("giving node %d its slots: %v", i, err)
		}
		meet(t, servers[0], server)
	}
	for i, server := range servers {
		node := server.Client(t)
		Eventually(t, 30*time.Second, fmt.Sprintf("node %d sees the whole cluster", i), func() bool {
			info := node.ClusterInfo(ctx).Val()
			return strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", nodes))
		})
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { client.Close() })
	return client
}

// meet introduces one node of a cluster to another. The bus has a port of its own.
func meet(t testing.TB, known, node *Server) {
	t.Helper()
	if known == node {
		return
	}
	host, port, _ := net.SplitHostPort(node.Addr)
	bus := node.Client(t).ConfigGet(context.Background(), "cluster-port").Val()["cluster-port"]
	if err := known.Client(t).Do(context.Background(), "CLUSTER", "MEET", host, port, bus).Err(); err != nil {
		t.Fatalf("introducing a node: %v", err)
	}
}
