package store

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
)

// The dedicated client has the options of the given one, also those that say "none", and another pool.
func TestDedicatedHasTheOptions(t *testing.T) {
	t.Parallel()
	for name, given := range map[string]redis.Options{
		"defaults": {},
		"none":     {ReadTimeout: -1, WriteTimeout: -1, MaxRetries: -1, MinRetryBackoff: -1, MaxRetryBackoff: -1},
		"no deadlines": {ReadTimeout: -2, WriteTimeout: -2, PoolSize: 1, MaxActiveConns: 1, MinIdleConns: 1,
			ConnMaxLifetime: time.Second, Username: "me", Password: "pw", DB: 3, ClientName: "x", ContextTimeoutEnabled: true},
	} {
		t.Run(name, func(t *testing.T) {
			given.Dialer = func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
			client := redis.NewClient(&given)
			defer client.Close()
			dedicated, done := Dedicated(client, 3)
			defer done()
			want, got := *client.Options(), *dedicated.(*redis.Client).Options()
			if got.ReadTimeout != want.ReadTimeout || got.WriteTimeout != want.WriteTimeout || got.MaxRetries != want.MaxRetries ||
				got.MinRetryBackoff != want.MinRetryBackoff || got.MaxRetryBackoff != want.MaxRetryBackoff {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
			if got.Username != want.Username || got.Password != want.Password || got.DB != want.DB || got.ClientName != want.ClientName ||
				got.ContextTimeoutEnabled != want.ContextTimeoutEnabled || got.Addr != want.Addr || got.Dialer == nil {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
			if got.PoolSize != 240 || got.MaxIdleConns != 12 || got.MaxActiveConns != 0 || got.MinIdleConns != 0 || got.ConnMaxLifetime > dedicatedLife {
				t.Errorf("the pool: %+v", got)
			}
		})
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{"a:1"}, ReadTimeout: -1, MaxRedirects: -1, MinRetryBackoff: -1, RouteRandomly: true, PoolSize: 1,
	})
	defer cluster.Close()
	dedicated, done := Dedicated(cluster, 3)
	defer done()
	got := dedicated.(*redis.ClusterClient).Options()
	if got.ReadTimeout != 0 || got.MaxRedirects != 0 || got.MinRetryBackoff != 0 || got.ReadOnly || got.PoolSize != 240 || got.MaxIdleConns != 12 || got.Addrs[0] != "a:1" {
		t.Errorf("of a cluster: %+v", got)
	}
}

// A client of sentinels waits at the master, and after a failover at the new one.
func TestDedicatedOfSentinels(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	s := redistest.StartSentinels(t)
	client := s.Client(t)
	dedicated, done := Dedicated(client, 1)
	defer done()
	for _, when := range []string{"before the failover", "after it"} {
		redistest.Eventually(t, time.Minute, when+" a message is written and taken", func() bool {
			if client.RPush(t.Context(), "mailbox", when).Err() != nil {
				return false
			}
			got, err := dedicated.BLPop(t.Context(), time.Second, "mailbox").Result()
			return err == nil && len(got) == 2 && got[1] == when
		})
		if when == "before the failover" {
			s.Master.Kill()
			s.Failover(t)
		}
	}
}
