package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// An Inspector looks into a queue (this file and explain.go) and steers it (control.go).
// Nothing that it does takes longer the more jobs wait.
type Inspector struct {
	queue   string
	client  redis.UniversalClient
	scripts *scripts
}

// NewInspector returns an inspector of the queue.
func NewInspector(rdb redis.UniversalClient, queue string) *Inspector {
	return &Inspector{queue: queue, client: rdb, scripts: newScripts(rdb, queue)}
}

// Counters count the jobs of a queue or of one tenant since the beginning.
type Counters struct {
	Offered int64 // by producers, without duplicates
	Started int64 // pulled to be started: one for each attempt
	Done    int64 // ended well; for a queue only, 0 for a tenant
	Failed  int64 // attempts that failed or whose worker was lost
	Dropped int64 // never to run, with a reason in Drops
	Dead    int64 // attempts exhausted
}

// Stats are the state of a queue at one moment.
type Stats struct {
	Waiting int64 // in lanes
	Later   int64 // not before a time: scheduled, or backing off
	Running int64 // pulled and not yet done
	Counters

	// Blocked is how long the jobs that have started had waited, all together, by the rule
	// that bound their slot, or "paused".
	Blocked map[string]time.Duration

	// Shadowed counts the starts that each shadow rule would not have let be.
	Shadowed map[string]int64
}

// Stats returns the state of the queue.
func (i *Inspector) Stats(ctx context.Context) (Stats, error) {
	p := prefix(i.queue)
	pipe := i.client.TxPipeline()
	counters := pipe.HGetAll(ctx, p+"stats")
	later := pipe.ZCard(ctx, p+"later")
	running := pipe.HLen(ctx, p+"running")
	blocked := pipe.HGetAll(ctx, p+"blocked")
	shadowed := pipe.HGetAll(ctx, p+"shadowed")
	if _, err := pipe.Exec(ctx); err != nil {
		return Stats{}, fmt.Errorf("inspecting queue %q: %w", i.queue, err)
	}
	stats := Stats{Later: later.Val(), Running: running.Val(), Counters: readCounters(counters.Val()),
		Blocked: make(map[string]time.Duration), Shadowed: make(map[string]int64)}
	for rule, text := range shadowed.Val() {
		stats.Shadowed[rule], _ = strconv.ParseInt(text, 10, 64)
	}
	for rule, text := range blocked.Val() {
		us, _ := strconv.ParseInt(text, 10, 64)
		stats.Blocked[rule] = time.Duration(us) * time.Microsecond
	}
	stats.Waiting, _ = strconv.ParseInt(counters.Val()["waiting"], 10, 64)
	return stats, nil
}

func readCounters(fields map[string]string) Counters {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(fields[name], 10, 64)
		return n
	}
	return Counters{
		Offered: number("offered"), Started: number("started"), Done: number("done"),
		Failed: number("failed"), Dropped: number("dropped"), Dead: number("dead"),
	}
}

// TenantStats are the state of one tenant.
type TenantStats struct {
	Tenant  string
	Waiting int64     // in its bucket
	Next    time.Time // no job of it starts before; the zero time if none waits
	Counters
}

// Tenant returns the state of a tenant, all zero if it was never heard of.
func (i *Inspector) Tenant(ctx context.Context, tenant string) (TenantStats, error) {
	all, err := i.tenants(ctx, []string{escape(tenant)})
	if err != nil {
		return TenantStats{}, err
	}
	return all[0], nil
}

// Tenants returns the tenants with waiting jobs in the order in which they are due,
// from the given place on, at most n.
func (i *Inspector) Tenants(ctx context.Context, from, n int) ([]TenantStats, error) {
	names, err := i.client.ZRange(ctx, prefix(i.queue)+"due", int64(from), int64(from+n-1)).Result()
	if err != nil {
		return nil, fmt.Errorf("inspecting queue %q: %w", i.queue, err)
	}
	return i.tenants(ctx, names)
}

// tenants returns the state of tenants by their escaped names.
func (i *Inspector) tenants(ctx context.Context, names []string) ([]TenantStats, error) {
	p := prefix(i.queue)
	pipe := i.client.Pipeline()
	fields := make([]*redis.MapStringStringCmd, len(names))
	due := make([]*redis.FloatCmd, len(names))
	for k, name := range names {
		fields[k] = pipe.HGetAll(ctx, p+"tenant:"+name)
		due[k] = pipe.ZScore(ctx, p+"due", name)
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("inspecting queue %q: %w", i.queue, err)
	}
	all := make([]TenantStats, len(names))
	for k, name := range names {
		all[k] = TenantStats{Tenant: unescape(name), Counters: readCounters(fields[k].Val())}
		all[k].Waiting, _ = strconv.ParseInt(fields[k].Val()["waiting"], 10, 64)
		if us, err := due[k].Result(); err == nil {
			all[k].Next = time.UnixMicro(int64(us))
		}
	}
	return all, nil
}

// A Drop is the record of a job that was dropped.
type Drop struct {
	ID, Tenant, User string
	Reason           Reason
	Rule             string // which rule refused it, for ReasonRule and ReasonImpossible
	At               time.Time
}

// Drops returns the newest drops, newest first, at most n. Redis keeps the last 100,000.
func (i *Inspector) Drops(ctx context.Context, n int) ([]Drop, error) {
	entries, err := i.client.XRevRangeN(ctx, prefix(i.queue)+"drops", "+", "-", int64(n)).Result()
	if err != nil {
		return nil, fmt.Errorf("inspecting queue %q: %w", i.queue, err)
	}
	drops := make([]Drop, len(entries))
	for k, entry := range entries {
		field := fieldsOf(entry)
		drops[k] = Drop{
			ID: field("id"), Tenant: field("tenant"), User: field("user"),
			Reason: Reason(field("reason")), Rule: field("rule"), At: microTime(field("at")),
		}
	}
	return drops, nil
}

// A DeadJob is a job whose attempts are exhausted.
type DeadJob struct {
	Entry            string // names it to Revive
	ID, Tenant, User string
	Error            string // of its last attempt
	At               time.Time
}

// Dead returns the newest dead jobs, newest first, at most n. Redis keeps the last 100,000.
func (i *Inspector) Dead(ctx context.Context, n int) ([]DeadJob, error) {
	entries, err := i.client.XRevRangeN(ctx, prefix(i.queue)+"dead", "+", "-", int64(n)).Result()
	if err != nil {
		return nil, fmt.Errorf("inspecting queue %q: %w", i.queue, err)
	}
	dead := make([]DeadJob, len(entries))
	for k, entry := range entries {
		field := fieldsOf(entry)
		dead[k] = DeadJob{
			Entry: entry.ID, ID: field("id"), Tenant: field("tenant"), User: field("user"),
			Error: field("error"), At: microTime(field("at")),
		}
	}
	return dead, nil
}

// fieldsOf returns the fields of a stream entry by name, names unescaped.
func fieldsOf(entry redis.XMessage) func(string) string {
	return func(name string) string {
		text, _ := entry.Values[name].(string)
		switch name {
		case "id", "tenant", "user":
			return unescape(text)
		}
		return text
	}
}

func microTime(text string) time.Time {
	n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return time.UnixMicro(n)
}
