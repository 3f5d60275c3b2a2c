package examine

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// names are the keys of a queue, by what they hold.
type names struct {
	all     []string
	lanes   map[store.Lane]bool
	due     map[string]bool // tenants that have an index of lanes
	tenants map[string]bool // that have counters
	folds   map[user]bool
	digests []digest // open ones
	running []string // workers
	bodies  []string // names of payloads
	ids     []string // escaped
	states  []string // scopes
}

type user struct{ tenant, user string }

// survey reads the names of all keys of the queue.
func (l *look) survey(ctx context.Context) error {
	l.names = names{
		lanes: make(map[store.Lane]bool), folds: make(map[user]bool), due: make(map[string]bool), tenants: make(map[string]bool),
	}
	seen := make(map[string]bool)
	return l.eachNode(ctx, func(ctx context.Context, node redis.Cmdable) error {
		for cursor := uint64(0); ; {
			keys, next, err := node.Scan(ctx, cursor, glob(l.prefix)+"*", 1000).Result()
			if err != nil {
				return err
			}
			for _, key := range keys {
				if rest, ours := strings.CutPrefix(key, l.prefix); ours && !seen[key] {
					seen[key] = true
					l.names.all = append(l.names.all, key)
					l.names.add(rest)
				}
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	})
}

// eachNode calls do for the servers that may have keys of the queue: all are in one slot.
func (l *look) eachNode(ctx context.Context, do func(context.Context, redis.Cmdable) error) error {
	switch client := l.Client.(type) {
	case *redis.ClusterClient:
		node, err := client.MasterForKey(ctx, l.key.Meta())
		if err != nil {
			return err
		}
		return do(ctx, node)
	case *redis.Ring:
		var failed error
		for _, shard := range client.GetShardClients() {
			if err := do(ctx, shard); err != nil {
				failed = err
			}
		}
		return failed
	}
	return do(ctx, l.Client)
}

// glob writes a text as a pattern that it alone matches.
func glob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// add sorts a key in, named by what stands behind the prefix.
func (n *names) add(rest string) {
	class, name, _ := strings.Cut(rest, ":")
	switch class {
	case "lane":
		if lane, ok := parseLane(name); ok {
			n.lanes[lane] = true
		}
	case "due":
		tenant, _, _ := strings.Cut(name, ":")
		n.due[envelope.Unescape(tenant)] = true
	case "tenant":
		n.tenants[envelope.Unescape(name)] = true
	case "fold":
		tenant, u, _ := strings.Cut(name, ":")
		n.folds[user{envelope.Unescape(tenant), envelope.Unescape(u)}] = true
	case "digest":
		if words := strings.SplitN(name, ":", 3); len(words) == 3 {
			n.digests = append(n.digests, digest{user{envelope.Unescape(words[0]), envelope.Unescape(words[1])}, words[2]})
		}
	case "running":
		n.running = append(n.running, name)
	case "body":
		n.bodies = append(n.bodies, name)
	case "id":
		n.ids = append(n.ids, name)
	case "state":
		n.states = append(n.states, name)
	}
}

// parseLane reads the key of a lane: tenant, user or user|label, and "high" or "low" if it has a priority.
func parseLane(name string) (lane store.Lane, ok bool) {
	words := strings.Split(name, ":")
	lane.Priority = envelope.Normal
	switch {
	case len(words) == 3 && words[2] == "high":
		lane.Priority = envelope.High
	case len(words) == 3 && words[2] == "low":
		lane.Priority = envelope.Low
	case len(words) != 2:
		return lane, false
	}
	return laneOf(envelope.Unescape(words[0]), words[1], lane.Priority), true
}
