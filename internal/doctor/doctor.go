// Package doctor looks for what is wrong with a Redis, the workers of a queue and the queue.
package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/watch"
)

// A Finding is one thing that was looked at.
type Finding struct {
	What    string `json:"what"`
	Seen    string `json:"seen"`
	Problem string `json:"problem,omitempty"` // why that is no good, and what would be right
	Repair  string `json:"repair,omitempty"`  // what a repair does, or has done; empty if none is safe
}

// Redis looks at the server: what it is, and whether it may forget.
func Redis(ctx context.Context, rdb redis.UniversalClient) (all []Finding) {
	info := infoOf(ctx, rdb)
	name := "Redis"
	if info["valkey_version"] != "" {
		name = "Valkey " + info["valkey_version"] + ", as Redis"
	}
	all = append(all, Finding{What: "server", Seen: name + " " + info["redis_version"]})
	eviction := Finding{What: "eviction", Seen: info["maxmemory_policy"]}
	if p := info["maxmemory_policy"]; p != "" && p != "noeviction" {
		eviction.Problem = "a full Redis deletes jobs and limits; want maxmemory-policy noeviction"
	}
	persistence := Finding{What: "persistence", Seen: "AOF " + onOff(info["aof_enabled"]) + ", last snapshot " + info["rdb_last_bgsave_status"]}
	switch {
	case info["aof_enabled"] == "1" && info["aof_last_write_status"] == "err":
		persistence.Problem = "the AOF cannot be written; look at Redis's log and the disk"
	case info["aof_enabled"] == "0":
		persistence.Problem = "after a crash of Redis accepted jobs are lost; want appendonly yes (see docs/operations.md)"
	}
	memory := Finding{What: "memory", Seen: info["used_memory_human"] + " of " + info["maxmemory_human"]}
	used, _ := strconv.ParseFloat(info["used_memory"], 64)
	most, _ := strconv.ParseFloat(info["maxmemory"], 64)
	switch {
	case most == 0:
		memory.Seen = info["used_memory_human"] + ", without a bound"
	case used > .7*most:
		memory.Problem = "more than 70 % are used; a full Redis refuses offers"
	}
	all = append(all, eviction, persistence, memory)
	if info["role"] == "slave" || info["role"] == "replica" {
		all = append(all, Finding{What: "replication", Seen: "this is a replica", Problem: "the queue needs the master"})
	}
	all = append(all, replicas(info)...)
	return append(all, clock(ctx, rdb), scripts(info))
}

// How far a replica may be behind its master, and how long a script may take on average.
const (
	longestLag    = 10 * time.Second
	largestLag    = 10 << 20
	longestScript = 2 * time.Millisecond
)

// replicas looks how far each replica is behind: what it does not have is lost with the master.
func replicas(info map[string]string) (all []Finding) {
	offset, _ := strconv.ParseInt(info["master_repl_offset"], 10, 64)
	for k := 0; info[fmt.Sprint("slave", k)] != ""; k++ {
		fields := make(map[string]string)
		for _, part := range strings.Split(info[fmt.Sprint("slave", k)], ",") {
			name, value, _ := strings.Cut(part, "=")
			fields[name] = value
		}
		has, _ := strconv.ParseInt(fields["offset"], 10, 64)
		silent, _ := strconv.Atoi(fields["lag"])
		f := Finding{
			What: "replica " + fields["ip"] + ":" + fields["port"],
			Seen: fmt.Sprintf("%s, %d bytes behind, last heard of %d s ago", fields["state"], offset-has, silent),
		}
		if fields["state"] != "online" || offset-has > largestLag || time.Duration(silent)*time.Second > longestLag {
			f.Problem = "what it does not have is lost if the master fails; look at its log and at the network"
		}
		all = append(all, f)
	}
	return all
}

// scripts looks how long Redis is busy with a script: nothing else runs meanwhile.
func scripts(info map[string]string) Finding {
	var calls, usec float64
	for _, part := range strings.Split(info["cmdstat_evalsha"], ",") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "calls":
			calls, _ = strconv.ParseFloat(value, 64)
		case "usec":
			usec, _ = strconv.ParseFloat(value, 64)
		}
	}
	if calls == 0 {
		return Finding{What: "scripts", Seen: "none has run"}
	}
	each := time.Duration(usec / calls * float64(time.Microsecond))
	f := Finding{What: "scripts", Seen: fmt.Sprintf("%.0f have run, for %v each", calls, each.Round(100*time.Nanosecond))}
	if each > longestScript {
		f.Problem = "they keep Redis from everything else for long; look at its CPU, and whether it swaps"
	}
	return f
}

// Inbox looks at the door of asynq producers.
func Inbox(ctx context.Context, rdb redis.UniversalClient, name string) Finding {
	n, err := rdb.ZCard(ctx, "asynq:{"+name+"}:archived").Result()
	switch {
	case err != nil:
		return Finding{What: "inbox", Seen: "unknown", Problem: err.Error()}
	case n > 0:
		return Finding{What: "inbox", Seen: fmt.Sprintf("archived tasks: %d", n), Problem: "tasks that cannot be jobs end in asynq's archive, with what is wrong: look there, and run or delete them"}
	}
	return Finding{What: "inbox", Seen: "archived tasks: 0"}
}

// clock compares Redis's clock with this machine's.
func clock(ctx context.Context, rdb redis.UniversalClient) Finding {
	before := time.Now()
	now, err := rdb.Time(ctx).Result()
	if err != nil {
		return Finding{What: "clock", Seen: "unknown", Problem: err.Error()}
	}
	trip := time.Since(before)
	off := now.Sub(before.Add(trip / 2)).Round(time.Microsecond)
	f := Finding{What: "clock", Seen: fmt.Sprintf("%v off this machine's, round trip %v", off, trip.Round(time.Microsecond))}
	if off.Abs() > time.Minute {
		f.Problem = "limits go by Redis's clock; NotBefore and StartBy of producers go by theirs: set one of them"
	}
	return f
}

func onOff(flag string) string {
	if flag == "1" {
		return "on"
	}
	return "off"
}

// infoOf reads what the server says of itself.
func infoOf(ctx context.Context, rdb redis.UniversalClient) map[string]string {
	fields := make(map[string]string)
	text, _ := rdb.Info(ctx).Result()
	commands, _ := rdb.Info(ctx, "commandstats").Result()
	text += "\n" + commands
	for _, line := range strings.Split(text, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// longestLateness is how late a worker may start jobs, at the 99th percentile.
const longestLateness = 100 * time.Millisecond

// Queue looks at the workers and at what waits.
func Queue(ctx context.Context, i *watch.Watcher) (all []Finding, err error) {
	h, err := i.Health(ctx)
	if err != nil {
		return nil, err
	}
	condition := Finding{What: "queue", Seen: string(h.Condition) + ": " + h.Detail}
	switch h.Condition {
	case watch.Stalled:
		condition.Problem = "start a worker, or look at the workers' logs"
	case watch.Failing:
		condition.Problem = "look at what fails (waterclock failures), and at the workers' logs"
	case watch.Starved:
		condition.Problem = "add workers or --concurrency, or limit the concurrency of the tenant that holds the places (see running)"
	}
	all = append(all, condition)
	workers, err := i.Workers(ctx)
	if err != nil {
		return nil, err
	}
	if len(workers) == 0 {
		all = append(all, Finding{What: "workers", Seen: "none", Problem: "nothing starts without one"})
	}
	for _, w := range workers {
		f := Finding{What: "worker " + w.Worker, Seen: fmt.Sprintf("%s, %d of %d places taken, clock known to %v, starts %v late at the 99th percentile", w.Host, w.Running, w.Places, w.Doubt, w.Late)}
		switch {
		case !w.Alive:
			f.Problem = "it is lost; its jobs come back"
		case w.Doubt > 20*time.Millisecond:
			f.Problem = "it is far from Redis, or short of CPU: it starts jobs late; want some milliseconds"
		case w.Late > longestLateness:
			f.Problem = "it starts jobs late: it, or the leader, is short of CPU"
		}
		all = append(all, f)
	}
	policies, err := i.Policies(ctx)
	if err != nil {
		return nil, err
	}
	limits := Finding{What: "policies", Seen: "in force since " + policies.Since.Format(time.RFC3339)}
	if policies.Version == 0 {
		limits = Finding{What: "policies", Seen: "none", Problem: "nothing is limited; see policies apply, or worker --policies"}
	}
	stats, err := i.Stats(ctx)
	if err != nil {
		return nil, err
	}
	deadJobs := Finding{What: "dead jobs", Seen: fmt.Sprintf("%d since the beginning", stats.Dead)}
	return append(all, limits, deadJobs), nil
}
