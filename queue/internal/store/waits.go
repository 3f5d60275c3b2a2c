package store

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Waits returns a client for n commands at a time that block, with connections of its own to the
// same Redis, and a function that closes them, which the caller calls when nothing waits any more. A blocked command
// holds its connection: taken from the user's pool, two of them for each queue would leave none to the other commands.
//
// The new client has the options of the given one; the hooks that were added to that it has not.
// A client of another type says by a method Unwrap which client it wraps. One that does not is
// used for blocking commands, too.
func Waits(client redis.UniversalClient, n int) (waits redis.UniversalClient, done func()) {
	switch c := client.(type) {
	case interface{ Options() *redis.Options }:
		waits = redis.NewClient(waitOptions(*c.Options(), n))
	case interface{ Options() *redis.ClusterOptions }:
		waits = redis.NewClusterClient(waitClusterOptions(*c.Options(), n))
	case interface{ Options() *redis.RingOptions }:
		waits = redis.NewRing(waitRingOptions(*c.Options(), n))
	case interface{ Unwrap() redis.UniversalClient }:
		return Waits(c.Unwrap(), n)
	default:
		return client, func() {}
	}
	return waits, func() {
		// What waits is given up.
		_ = waits.Close()
	}
}

// WaitsEach is how many commands of a worker may block in a queue at a time: one for its messages and one for notices,
// and for each of them one more, since the worker waits anew while the connection of the former wait may be dead.
const WaitsEach = 4

// waitLife is how long a connection for blocking commands is used. The pool of a client of sentinels closes the
// connections to a master that was replaced. This client is not told of that: so no connection gets old.
const waitLife = time.Minute

// The options of a client are those that were given with the defaults filled in, where 0 means
// none. Given to a new client 0 would mean the default again, and -1 means none.

// waitOptions returns the options for a single Redis, or one behind sentinels: those of the user's client with a pool
// of n connections, and without what commands that block have no use for.
func waitOptions(o redis.Options, n int) *redis.Options {
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = n, 0, 0, 0
	o.MaxConcurrentDials, o.PipelinePoolSize = 0, -1
	if o.ConnMaxLifetime <= 0 || o.ConnMaxLifetime > waitLife {
		o.ConnMaxLifetime = waitLife
	}
	o.ClientSideCache, o.ClientSideCacheConfig = nil, nil
	o.MaintNotificationsConfig = disabled()
	o.ReadTimeout, o.WriteTimeout = timeoutAgain(o.ReadTimeout), timeoutAgain(o.WriteTimeout)
	o.MaxRetries = noneAgain(o.MaxRetries)
	o.MinRetryBackoff, o.MaxRetryBackoff = noneAgain(o.MinRetryBackoff), noneAgain(o.MaxRetryBackoff)
	return &o
}

// waitClusterOptions returns those for a cluster. Every node may have n connections, since all queues may be at one.
// All commands go to masters: taking a message writes, and a replica may be behind.
func waitClusterOptions(o redis.ClusterOptions, n int) *redis.ClusterOptions {
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = n, 0, 0, 0
	o.MaxConcurrentDials, o.PipelinePoolSize = 0, -1
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	o.MaintNotificationsConfig = disabled()
	o.ReadTimeout, o.WriteTimeout = noneAgain(o.ReadTimeout), noneAgain(o.WriteTimeout)
	o.MaxRedirects = noneAgain(o.MaxRedirects)
	o.MinRetryBackoff, o.MaxRetryBackoff = noneAgain(o.MinRetryBackoff), noneAgain(o.MaxRetryBackoff)
	return &o
}

// waitRingOptions returns those for several independent Redis servers.
func waitRingOptions(o redis.RingOptions, n int) *redis.RingOptions {
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = n, 0, 0, 0
	o.PipelinePoolSize = -1
	o.MaxRetries = noneAgain(o.MaxRetries)
	o.MinRetryBackoff, o.MaxRetryBackoff = noneAgain(o.MinRetryBackoff), noneAgain(o.MaxRetryBackoff)
	return &o
}

func disabled() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// noneAgain returns an option that is to stay 0.
func noneAgain[T int | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}

// timeoutAgain also keeps -1, no deadline at all, which is given as -2.
func timeoutAgain(v time.Duration) time.Duration {
	if v <= 0 {
		return v - 1
	}
	return v
}
