package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
)

// A spoiler makes the n-th bad job and checks what it is told at once.
type spoiler func(f *fire, n int)

// spoilers are all ways in which a job can be bad.
func spoilers() []spoiler {
	ways := []spoiler{
		forged((*fire).flip), forged((*fire).flip), forged((*fire).flip), forged(flips(3)), forged((*fire).cut),
		forged(func(_ *fire, body []byte) []byte { return append([]byte("\xc8\x01x"), body...) }),    // a newer version's
		forged(func(_ *fire, body []byte) []byte { return append([]byte("\x64\x01x"), body...) }),    // an option to keep
		forged(func(_ *fire, body []byte) []byte { return append([]byte("\x0c\x04gone"), body...) }), // a payload that is not there
		forged(func(_ *fire, body []byte) []byte { return append([]byte("\x06\x01k"), body...) }),    // a collapse key that nobody keeps
		forged(func(_ *fire, body []byte) []byte { return append([]byte("\x02\x01\x01"), body...) }), // expired since 1970
		forged(func(*fire, []byte) []byte { return bytes.Repeat([]byte{0xff}, 40) }),                 // garbage
		forged(func(*fire, []byte) []byte { return nil }),                                            // nothing
		(*fire).stub, (*fire).laterGarbage, (*fire).noise, (*fire).refused, (*fire).command,
	}
	for _, key := range []string{"tenant:%s", "due:%s", "lane:%s:bad", "fold:%s:bad", "state:t:%s", "state:u:%s:bad"} {
		ways = append(ways, wrongType(key))
	}
	for _, spoil := range invalidJobs {
		ways = append(ways, invalid(spoil))
	}
	for _, task := range badTasks {
		ways = append(ways, badTask(task))
	}
	return ways
}

// A forger is a producer that writes jobs otherwise than it should.
type forger struct {
	client *queue.Client
	change atomic.Pointer[func([]byte) []byte]
}

func newForger(t testing.TB, client *redis.Client) *forger {
	f := &forger{}
	mine := redis.NewClient(client.Options())
	t.Cleanup(func() { mine.Close() })
	mine.AddHook(f)
	f.client = newClient(t, mine, queueName)
	return f
}

func (f *forger) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *forger) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook changes the jobs in an offer: they are the only bytes among its arguments.
func (f *forger) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		change := f.change.Load()
		for i, arg := range cmd.Args() {
			if body, ok := arg.([]byte); ok && len(body) > 0 && change != nil && strings.HasPrefix(cmd.Name(), "eval") {
				cmd.Args()[i] = (*change)(bytes.Clone(body))
			}
		}
		return next(ctx, cmd)
	}
}

// lane names the lane of a bad job, and lets it be accounted for.
func (f *fire) lane(n int) (tenant, user string) {
	tenant, user = fmt.Sprint("t", n%fireTenants), fmt.Sprint("bad-", n)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lanes[tenant+" "+user] = true
	return tenant, user
}

// forged offers a job whose bytes are changed on their way.
func forged(change func(f *fire, body []byte) []byte) spoiler {
	return func(f *fire, n int) {
		tenant, user := f.lane(n)
		now := func(body []byte) []byte { return change(f, body) }
		f.forger.change.Store(&now)
		_, err := f.forger.client.Enqueue(f.t.Context(), queue.Job{
			Tenant: tenant, User: user, Type: "push", Timeout: time.Minute, MaxAttempts: 2, Headers: map[string]string{"a": "b"},
			FinishBy: time.Now().Add(time.Hour), Payload: nil,
		})
		if err != nil {
			f.t.Errorf("forging: %v", err)
		}
	}
}

func (f *fire) flip(body []byte) []byte {
	body[f.rng.IntN(len(body))] ^= byte(1 + f.rng.IntN(255))
	return body
}

func flips(n int) func(f *fire, body []byte) []byte {
	return func(f *fire, body []byte) []byte {
		for range n {
			body = f.flip(body)
		}
		return body
	}
}

func (f *fire) cut(body []byte) []byte { return body[:f.rng.IntN(len(body))] }

// stub lets a job wait whose collapse key is gone.
func (f *fire) stub(n int) {
	ctx := f.t.Context()
	tenant, user := f.lane(n)
	now := float64(time.Now().UnixMicro())
	f.must(f.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.RPush(ctx, "wc:{push}:lane:"+tenant+":"+user, "=gone")
		p.ZAdd(ctx, "wc:{push}:due:"+tenant, redis.Z{Score: now, Member: user})
		p.ZAddLT(ctx, "wc:{push}:tenants", redis.Z{Score: now, Member: tenant})
		p.HIncrBy(ctx, "wc:{push}:meta", "in", 1)
		p.HIncrBy(ctx, "wc:{push}:tenant:"+tenant, "in", 1)
		p.XAdd(ctx, &redis.XAddArgs{Stream: "wc:{push}:notices", Values: []any{tenant + ":" + user + ":1", "=gone"}})
		return nil
	}))
}

// laterGarbage lets something wait for its time that is no job.
func (f *fire) laterGarbage(n int) {
	ctx := f.t.Context()
	tenant, user := f.lane(n)
	f.must(f.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAdd(ctx, "wc:{push}:later", redis.Z{Score: float64(time.Now().UnixMicro()), Member: tenant + ":" + user + ":1 garbage"})
		p.HIncrBy(ctx, "wc:{push}:meta", "other", 1)
		p.HIncrBy(ctx, "wc:{push}:tenant:"+tenant, "other", 1)
		p.XAdd(ctx, &redis.XAddArgs{Stream: "wc:{push}:notices", Values: []any{"!later", "1"}})
		return nil
	}))
}

// noise writes what nobody can read where messages and claims are expected.
func (f *fire) noise(n int) {
	ctx := f.t.Context()
	worker := f.workers[n%len(f.workers)]
	f.must(f.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.XAdd(ctx, &redis.XAddArgs{Stream: "wc:{push}:notices", Values: []any{"!late", "x", "!return", "5 abc", "", "", "!nonsense", "\xff", "a:b", "c", "!refund", "1 x1 y"}})
		p.RPush(ctx, "wc:{push}:mailbox:"+worker, "nonsense", "1 4 !job3 abc0 1 x1 y", "-7 9999999999 x")
		p.HSet(ctx, "wc:{push}:running:"+worker, fmt.Sprint("junk", n), "junk", fmt.Sprint(n, " 5 t0:u0:1"), "junk")
		return nil
	}))
}

func (f *fire) must(_ []redis.Cmder, err error) {
	if err != nil {
		f.t.Error(err)
	}
}

// wrongType offers a job of a tenant of which one key holds something else.
func wrongType(key string) spoiler {
	return func(f *fire, n int) {
		tenant := fmt.Sprint("odd-", n)
		if err := f.client.SetNX(f.t.Context(), "wc:{push}:"+fmt.Sprintf(key, tenant), "x", 0).Err(); err != nil {
			f.t.Error(err)
		}
		receipts, err := newClient(f.t, f.client, queueName).Enqueue(f.t.Context(), queue.Job{Tenant: tenant, User: "bad", Type: "push", CollapseKey: "k"})
		if err != nil {
			f.t.Errorf("%s: %v", key, err)
			return
		}
		if r := receipts[0]; r.Status == queue.Accepted {
			f.mu.Lock()
			f.lanes[tenant+" bad"] = true
			f.mu.Unlock()
		} else if r.Reason != queue.ReasonBroken {
			f.t.Errorf("%s: %+v", key, r)
		}
	}
}

// invalidJobs are what the API refuses.
var invalidJobs = []func(*queue.Job){
	func(j *queue.Job) { j.Tenant = "" },
	func(j *queue.Job) { j.User = strings.Repeat("u", 1025) },
	func(j *queue.Job) { j.Cost = -1 },
	func(j *queue.Job) { j.Cost = math.MaxInt },
	func(j *queue.Job) { j.Priority = math.MinInt },
	func(j *queue.Job) { j.MaxAttempts = math.MaxInt },
	func(j *queue.Job) { j.Timeout = math.MaxInt64 },
	func(j *queue.Job) { j.Payload = make([]byte, 1<<20+1) },
	func(j *queue.Job) { j.NotBefore = time.Unix(1<<60, 0) },
	func(j *queue.Job) { j.StartBy = time.UnixMicro(math.MaxInt64) },
	func(j *queue.Job) { j.FinishBy = time.UnixMicro(math.MinInt64) },
	func(j *queue.Job) { j.Headers = map[string]string{"x": strings.Repeat("y", 1<<17)} },
}

func invalid(spoil func(*queue.Job)) spoiler {
	return func(f *fire, n int) {
		job := queue.Job{Tenant: "t1", User: fmt.Sprint("bad-", n), Type: "push"}
		spoil(&job)
		if _, err := newClient(f.t, f.client, queueName).Enqueue(f.t.Context(), job); !errors.Is(err, queue.ErrInvalidJob) {
			f.t.Errorf("%+v: %v", job, err)
		}
	}
}

// refused offers jobs that are valid, and never start.
func (f *fire) refused(n int) {
	tenant, user := f.lane(n)
	receipts, err := newClient(f.t, f.client, queueName).Enqueue(f.t.Context(),
		queue.Job{Tenant: tenant, User: user, Type: "push", Cost: 1_000_000},
		queue.Job{Tenant: tenant, User: user, Type: "push", StartBy: time.Now().Add(-time.Hour)})
	if err != nil || receipts[0].Reason != queue.ReasonImpossible || receipts[1].Reason != queue.ReasonExpired {
		f.t.Errorf("%+v, %v", receipts, err)
	}
}

// command gives a line to the producer that it refuses.
func (f *fire) command(n int) {
	lines := []string{"[]", `{"tenant":"t"`, `{"tenant":"t","user":"u","type":"x","cost":1e9}`, "\xff", `{"tenant":"t","user":"u","type":"x","priority":9}`}
	cmd := exec.CommandContext(f.t.Context(), filepath.Join(f.dir, "producer"), "--redis", "redis://"+f.client.Options().Addr+"/0", "--queue", queueName, "--quiet")
	cmd.Stdin = strings.NewReader(lines[n%len(lines)] + "\n")
	out, err := cmd.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("stdin:1: ")) {
		f.t.Errorf("%q: %v: %s", lines[n%len(lines)], err, out)
	}
}

// badTasks are asynq tasks that are no jobs.
var badTasks = []struct {
	headers map[string]string
	options []asynq.Option
}{
	{nil, nil},
	{map[string]string{"waterclock-tenant": "t"}, nil},
	{map[string]string{"waterclock-tenant": "t", "waterclock-user": "bad", "waterclock-cost": "none"}, nil},
	{map[string]string{"waterclock-tenant": "t", "waterclock-user": "bad", "waterclock-prioriti": "high"}, nil},
	{map[string]string{"waterclock-tenant": strings.Repeat("t", 2000), "waterclock-user": "bad"}, nil},
	{map[string]string{"waterclock-tenant": "t", "waterclock-user": "bad", "waterclock-deadline": "tomorrow"}, nil},
	{queue.Headers("t", "bad"), []asynq.Option{asynq.Deadline(time.Unix(1_700_000_000, 0))}},
}

func badTask(task struct {
	headers map[string]string
	options []asynq.Option
}) spoiler {
	return func(f *fire, n int) {
		_, err := asynq.NewClientFromRedisClient(f.client).EnqueueContext(f.t.Context(),
			asynq.NewTaskWithHeaders("push", []byte("x"), task.headers), append(task.options[:len(task.options):len(task.options)], asynq.Queue(queueName))...)
		if err != nil {
			f.t.Error(err)
		}
		f.archived++
	}
}
