package store

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Dedicated returns a client with connections of its own to the same Redis, for that many queues, and a function that
// closes them, which the caller calls when nothing is sent any more. Two kinds of commands go by it:
//
//   - Commands that block hold their connections. Taken from the user's pool, two of them for each queue would leave none
//     to other commands.
//   - Beats and acknowledgements decide whether a worker keeps its lease, and whether its jobs run again. Where a firewall
//     forgets all connections of a pool, a command by one of them gets no answer until the client's ReadTimeout, which is
//     as long as a short lease. So they are sent again while no answer comes (package retry), and few connections are kept
//     idle for them: after as many tries, the next one goes by a new connection.
//
// The new client has the options of the given one; the hooks that were added to that it has not.
// A client of another type says by a method Unwrap which client it wraps. One that does not is
// used for these commands, too.
func Dedicated(client redis.UniversalClient, queues int) (dedicated redis.UniversalClient, done func()) {
	switch c := client.(type) {
	case interface{ Options() *redis.Options }:
		dedicated = redis.NewClient(dedicatedOptions(*c.Options(), queues))
	case interface{ Options() *redis.ClusterOptions }:
		dedicated = redis.NewClusterClient(dedicatedClusterOptions(*c.Options(), queues))
	case interface{ Options() *redis.RingOptions }:
		dedicated = redis.NewRing(dedicatedRingOptions(*c.Options(), queues))
	case interface{ Unwrap() redis.UniversalClient }:
		return Dedicated(c.Unwrap(), queues)
	default:
		return client, func() {}
	}
	return dedicated, func() {
		// What still waits for an answer is given up.
		_ = dedicated.Close()
	}
}

// OneServer reports whether all keys are on one server, of which one clock tells the time.
func (s *Store) OneServer() bool { return oneServer(s.client) }

func oneServer(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case interface{ Options() *redis.Options }:
		return true
	case interface{ Unwrap() redis.UniversalClient }:
		return oneServer(c.Unwrap())
	}
	return false
}

// Of each queue, idleEach connections are kept while they are not used: for its messages, for its notices, for a beat, and
// for an acknowledgement. There are more while some are dead: of each kind of question, sixteen are asked at once at most.
const (
	idleEach = 4
	mostEach = 20 * idleEach
)

// dedicatedLife is how long a connection is used. The pool of a client of sentinels closes the connections to a master that
// was replaced. This client is not told of that: so no connection gets old.
const dedicatedLife = time.Minute

// The options of a client are those that were given with the defaults filled in, where 0 means
// none. Given to a new client 0 would mean the default again, and -1 means none.

// dedicatedOptions returns the options for a single Redis, or one behind sentinels: those of the user's client with another
// pool, and without what these commands have no use for.
func dedicatedOptions(o redis.Options, queues int) *redis.Options {
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = mostEach*queues, 0, idleEach*queues, 0
	o.MaxConcurrentDials, o.PipelinePoolSize = 0, -1
	if o.ConnMaxLifetime <= 0 || o.ConnMaxLifetime > dedicatedLife {
		o.ConnMaxLifetime = dedicatedLife
	}
	o.ClientSideCache, o.ClientSideCacheConfig = nil, nil
	o.MaintNotificationsConfig = disabled()
	o.ReadTimeout, o.WriteTimeout = timeoutAgain(o.ReadTimeout), timeoutAgain(o.WriteTimeout)
	o.MaxRetries = noneAgain(o.MaxRetries)
	o.MinRetryBackoff, o.MaxRetryBackoff = noneAgain(o.MinRetryBackoff), noneAgain(o.MaxRetryBackoff)
	return &o
}

// dedicatedClusterOptions returns those for a cluster. Every node may have so many connections, since all queues may be at one.
// All commands go to masters: they write, and a replica may be behind.
func dedicatedClusterOptions(o redis.ClusterOptions, queues int) *redis.ClusterOptions {
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = mostEach*queues, 0, idleEach*queues, 0
	o.MaxConcurrentDials, o.PipelinePoolSize = 0, -1
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	o.MaintNotificationsConfig = disabled()
	o.ReadTimeout, o.WriteTimeout = noneAgain(o.ReadTimeout), noneAgain(o.WriteTimeout)
	o.MaxRedirects = noneAgain(o.MaxRedirects)
	o.MinRetryBackoff, o.MaxRetryBackoff = noneAgain(o.MinRetryBackoff), noneAgain(o.MaxRetryBackoff)
	return &o
}

// dedicatedRingOptions returns those for several independent Redis servers.
func dedicatedRingOptions(o redis.RingOptions, queues int) *redis.RingOptions {
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = mostEach*queues, 0, idleEach*queues, 0
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
