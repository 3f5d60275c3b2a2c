package queue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// An Inspector looks into a queue and changes its policies.
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
}

// Stats returns the state of the queue.
func (i *Inspector) Stats(ctx context.Context) (Stats, error) {
	p := prefix(i.queue)
	pipe := i.client.TxPipeline()
	counters := pipe.HGetAll(ctx, p+"stats")
	later := pipe.ZCard(ctx, p+"later")
	running := pipe.HLen(ctx, p+"running")
	if _, err := pipe.Exec(ctx); err != nil {
		return Stats{}, fmt.Errorf("inspecting queue %q: %w", i.queue, err)
	}
	stats := Stats{Later: later.Val(), Running: running.Val(), Counters: readCounters(counters.Val())}
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

// Tenant returns how many jobs of a tenant wait, and its counters.
func (i *Inspector) Tenant(ctx context.Context, tenant string) (waiting int64, c Counters, err error) {
	fields, err := i.client.HGetAll(ctx, prefix(i.queue)+"tenant:"+escape(tenant)).Result()
	if err != nil {
		return 0, Counters{}, fmt.Errorf("inspecting queue %q: %w", i.queue, err)
	}
	waiting, _ = strconv.ParseInt(fields["waiting"], 10, 64)
	return waiting, readCounters(fields), nil
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
			ID: field("id"), Tenant: field("tenant"), User: field("user"),
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

// SetPolicies replaces the policies of the queue. They are checked whole first; the
// error says what is wrong and nothing changes. The next pull of every worker obeys
// them, for waiting jobs too. Setting the same policies again changes nothing.
func (i *Inspector) SetPolicies(ctx context.Context, p Policies) error {
	if err := checkQueue(i.queue); err != nil {
		return err
	}
	if err := p.Validate(); err != nil {
		return err
	}
	var args []any
	for field, text := range p.compile(Grace) {
		args = append(args, field, text)
	}
	if err := i.scripts.run(ctx, i.scripts.policies, args...).Err(); err != nil {
		return fmt.Errorf("setting the policies of queue %q: %w", i.queue, err)
	}
	return nil
}
