package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/inprocess"
)

// Embedded is the URL of a Redis inside of this process.
const Embedded = "embedded"

// patience is how long Redis gets to answer at the start.
const patience = 5 * time.Second

// loading is how long Redis gets to load the data that it had when it was stopped.
const loading = time.Minute

// Redis is a Redis that was there when it was opened.
type Redis struct {
	redis.UniversalClient

	// Address is where it is, without passwords.
	Address string

	// Warnings say what is wrong with its configuration.
	Warnings []string

	embedded *miniredis.Miniredis
}

// OpenRedis returns a client of the Redis at a URL, see parseURL, or of a new one in
// this process if it is [Embedded]. Errors name its address and never its password.
func OpenRedis(ctx context.Context, rawURL string) (*Redis, error) {
	if rawURL == Embedded {
		return openEmbedded()
	}
	t, err := parseURL(rawURL)
	if err != nil {
		return nil, Usagef("--redis: %v", err)
	}
	client, err := t.client()
	if err != nil {
		return nil, Usagef("--redis: %v", err)
	}
	r := &Redis{UniversalClient: client, Address: strings.Join(t.hosts, ",")}
	if err := r.greet(ctx); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Unwrap returns the client without what is known of its Redis.
func (r *Redis) Unwrap() redis.UniversalClient { return r.UniversalClient }

// openEmbedded starts the embedded Redis. Nothing expires in it: the scripts need no
// expiry to be right, and miniredis would look at every key for every command.
func openEmbedded() (*Redis, error) {
	server, err := inprocess.Listen("127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the embedded Redis: %w", err)
	}
	return &Redis{
		UniversalClient: redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true}),
		Address:         server.Addr(),
		embedded:        server,
	}, nil
}

// Close closes the connections, and the embedded server.
func (r *Redis) Close() error {
	err := r.UniversalClient.Close()
	if r.embedded != nil {
		r.embedded.Close()
	}
	return err
}

// greet finds out whether Redis is there and suits us.
func (r *Redis) greet(ctx context.Context) error {
	var reply redis.Error
	switch err := r.ping(ctx); {
	case loads(err):
		return fmt.Errorf("the Redis at %s still loads its data; try again later", r.Address)
	case errors.As(err, &reply) && err.Error() == reply.Error(): // and not what a sentinel has said
		return fmt.Errorf("the Redis at %s refuses: %s", r.Address, reply.Error())
	case err != nil:
		return fmt.Errorf("no Redis at %s: %s", r.Address, cause(err))
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	nodes, ok := r.UniversalClient.(*redis.ClusterClient)
	if !ok {
		return r.check(r.Info(ctx), r.Address)
	}
	var mu sync.Mutex // nodes are asked at once
	return nodes.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		info := node.Info(ctx)
		mu.Lock()
		defer mu.Unlock()
		return r.check(info, node.Options().Addr)
	})
}

// ping asks for a sign of life, and asks again as long as Redis loads its data.
func (r *Redis) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loading)
	defer cancel()
	for {
		err := r.pingOnce(ctx)
		if !loads(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (r *Redis) pingOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return r.Ping(ctx).Err()
}

// loads tells that Redis has been started and cannot answer yet.
func loads(err error) bool { return err != nil && redis.HasErrorPrefix(err, "LOADING") }

// check looks at what a server says about itself.
func (r *Redis) check(reply *redis.StringCmd, address string) error {
	info, err := reply.Result()
	if err != nil {
		return nil // not everybody may ask; what follows will show
	}
	warning, err := checkServer(info)
	if err != nil {
		return fmt.Errorf("the Redis at %s %w", address, err)
	}
	if warning != "" && !slices.Contains(r.Warnings, warning) {
		r.Warnings = append(r.Warnings, warning)
	}
	return nil
}

// cause is why Redis does not answer, in few words: the address is said already.
func cause(err error) string {
	var errno syscall.Errno
	var lookup *net.DNSError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return "it hangs up; want rediss:// if it speaks TLS"
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &lookup):
		return lookup.Err
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return fmt.Sprintf("no answer within %v", patience)
	}
	return err.Error()
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// checkServer reads what INFO replied. It returns an error if the server is too old and
// a warning if it may throw jobs away. What the reply does not say is taken for good.
func checkServer(info string) (warning string, err error) {
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	if version := fields["redis_version"]; version != "" && older(version, 6, 2) {
		return "", fmt.Errorf("is version %s; want 6.2 or newer", version)
	}
	if policy := fields["maxmemory_policy"]; policy != "" && policy != "noeviction" {
		warning = fmt.Sprintf("maxmemory-policy is %s: when its memory is full, Redis will throw waiting jobs away; "+
			"want noeviction", policy)
	}
	return warning, nil
}

func older(version string, major, minor int) bool {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(second)
	return errA == nil && errB == nil && (a < major || a == major && b < minor)
}
