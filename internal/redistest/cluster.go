package redistest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Cluster is a Redis Cluster of masters, without replicas unless [Cluster.StartReplica] adds some.
type Cluster struct {
	Nodes []*Server
}

// slots is how many hash slots a Redis Cluster has.
const slots = 16384

// StartCluster starts a Redis Cluster of that many masters, ends it with the test, and
// returns a client of it. Where there is no redis-server the test is skipped.
func StartCluster(t testing.TB, nodes int) *redis.ClusterClient {
	t.Helper()
	return StartNodes(t, nodes).Client(t)
}

// StartNodes is [StartCluster] for who wants the nodes. Each gets the extra arguments.
func StartNodes(t testing.TB, nodes int, args ...string) *Cluster {
	t.Helper()
	ctx := context.Background()
	c := &Cluster{}
	args = append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "2000"}, args...)
	for range nodes {
		c.Nodes = append(c.Nodes, Start(t, args...))
	}
	host, port, _ := net.SplitHostPort(c.Nodes[0].Addr)
	for i, server := range c.Nodes {
		node := server.Client(t)
		if err := node.ClusterAddSlotsRange(ctx, i*slots/nodes, (i+1)*slots/nodes-1).Err(); err != nil {
			t.Fatalf("giving node %d its slots: %v", i, err)
		}
		if err := node.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			t.Fatalf("numbering node %d: %v", i, err)
		}
		if err := node.ClusterMeet(ctx, host, port).Err(); i > 0 && err != nil {
			t.Fatalf("introducing node %d: %v", i, err)
		}
	}
	for i, server := range c.Nodes {
		node := server.Client(t)
		Eventually(t, 30*time.Second, fmt.Sprintf("node %d sees the whole cluster", i), func() bool {
			info := node.ClusterInfo(ctx).Val()
			return strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", nodes))
		})
	}
	return c
}

// StartReplica starts a replica of a node, with the extra arguments, and waits until it follows. It is not one of Nodes.
func (c *Cluster) StartReplica(t testing.TB, of *Server, args ...string) *Server {
	t.Helper()
	ctx := context.Background()
	replica := Start(t, append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "2000"}, args...)...)
	node, master := replica.Client(t), of.Client(t)
	host, port, _ := net.SplitHostPort(of.Addr)
	if err := node.ClusterMeet(ctx, host, port).Err(); err != nil {
		t.Fatalf("introducing a replica: %v", err)
	}
	id := master.Do(ctx, "CLUSTER", "MYID").Val()
	Eventually(t, 30*time.Second, "a replica is told whom to follow", func() bool {
		return node.Do(ctx, "CLUSTER", "REPLICATE", id).Err() == nil // not before it knows that node
	})
	Eventually(t, 30*time.Second, "a replica follows", func() bool {
		return strings.Contains(master.Info(ctx, "replication").Val(), "state=online") &&
			strings.Contains(node.Info(ctx, "replication").Val(), "master_link_status:up")
	})
	return replica
}

func (c *Cluster) addrs() (addrs []string) {
	for _, node := range c.Nodes {
		addrs = append(addrs, node.Addr)
	}
	return addrs
}

// URL returns the cluster's addresses as the commands take them.
func (c *Cluster) URL() string { return "redis-cluster://" + strings.Join(c.addrs(), ",") }

// Client returns a new client of the cluster.
func (c *Cluster) Client(t testing.TB) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.addrs()})
	t.Cleanup(func() { client.Close() })
	return client
}

// Owner returns the node that holds a key.
func (c *Cluster) Owner(t testing.TB, key string) *Server {
	t.Helper()
	master, err := c.Client(t).MasterForKey(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range c.Nodes {
		if node.Addr == master.Options().Addr {
			return node
		}
	}
	t.Fatalf("no node holds %s", key)
	return nil
}
