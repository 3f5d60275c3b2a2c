package inprocess_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/inprocess"
	"github.com/waterclock/waterclock/internal/redistest"
)

// Scripts do on the Redis in this process what they do on a real one.
func TestScripts(t *testing.T) {
	mini := redistest.Mini(t)
	real := redistest.Start(t).Client(t)
	for name, script := range map[string]string{
		"nothing":            `return`,
		"false":              `return false`,
		"true":               `return true`,
		"number":             `return 3.99`,
		"text":               `return 'a\r\nb'`,
		"nested":             `return {1, {'a', {2}}, false, 'b'}`,
		"ends at nil":        `return {1, nil, 3}`,
		"status":             `return redis.status_reply('FINE')`,
		"error":              `return redis.error_reply('BUSY so much')`,
		"error without code": `return redis.error_reply('bad')`,
		"its status":         `return redis.call('SET', KEYS[1], ARGV[1])`,
		"its status inside":  `return redis.call('SET', KEYS[1], ARGV[1]).ok`,
		"its nil":            `return redis.call('GET', 'none') == false`,
		"its list":           `redis.call('RPUSH', KEYS[1], 'a', 2, 'c') return redis.call('LRANGE', KEYS[1], 0, -1)`,
		"its nils":           `redis.call('SET', KEYS[1], 'x') return redis.call('MGET', KEYS[1], 'none', KEYS[1])[3]`,
		"its error":          `redis.call('SET', KEYS[1], 'x') return redis.pcall('LPUSH', KEYS[1], 'y')`,
		"its error is table": `redis.call('SET', KEYS[1], 'x') return redis.pcall('LPUSH', KEYS[1], 'y').err`,
		"keys and arguments": `return {#KEYS, #ARGV, KEYS[1], ARGV[2]}`,
		"json":               `local v = cjson.decode(ARGV[3]) return {v.a, v.b[2], cjson.encode({1, 2})}`,
		"sha1":               `return redis.sha1hex('abc')`,
		"varied arguments":   `return redis.call('ECHO', 12) .. redis.call('ECHO', '1.5')`,
		"libraries":          `return {math.floor(2.5), string.rep('x', 3), table.concat({'a', 'b'}, '-'), tostring(nil), type(unpack), select('#', 1, 2)}`,
		"coroutines":         `local c = coroutine.wrap(function() coroutine.yield(1) coroutine.yield(2) end) return {c(), c()}`,
		"locals of others":   `local n = 0 for i = 1, 10 do n = n + i end return n`,
		"its own pcall":      `return pcall(redis.call, 'GET') and 1 or 0`,
	} {
		t.Run(name, func(t *testing.T) {
			var replies []string
			for _, client := range []*redis.Client{mini, real} {
				s := redis.NewScript(script)
				for range 3 { // the first call is made with the text, the others by its SHA1
					client.FlushDB(t.Context())
					reply, err := s.Run(t.Context(), client, []string{"k"}, "v", 2, `{"a":"x","b":[1,2]}`).Result()
					replies = append(replies, fmt.Sprintf("%T %v %v", reply, reply, err))
				}
			}
			for _, reply := range replies {
				if reply != replies[5] {
					t.Fatalf("three times here, three times by a real Redis: %q", replies)
				}
			}
		})
	}
}

// What is wrong with a script, or with the call, is said, and the next script knows nothing of it.
func TestWrongScripts(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := t.Context()
		for script, want := range map[string]string{
			`redis.call('SET', KEYS[1], 'x') redis.call('LPUSH', KEYS[1], 'y')`: "WRONGTYPE Operation",
			`redis.call('NO.SUCH')`:             "nknown",
			`x = 1`:                             "ttempt",
			`return y`:                          "global variable 'y'",
			`error('this is wrong')`:            "this is wrong",
			`local t = nil return t.x`:          "t",
			`redis.call('SET', 'a', {})`:        "must be strings or integers",
			`redis.call()`:                      "at least one argument",
			`return redis.call('EVAL', '1', 0)`: "not allowed from script",
		} {
			s := redis.NewScript(script)
			for range 3 {
				client.Del(ctx, "k")
				if err := s.Run(ctx, client, []string{"k"}).Err(); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", script, err, want)
				}
			}
			if n, err := redis.NewScript(`return #KEYS + #ARGV`).Run(ctx, client, nil).Int(); n != 0 || err != nil {
				t.Errorf("after %s: %d, %v", script, n, err)
			}
		}
		for _, args := range [][]any{{"EVALSHA", "ffff", 0}, {"EVALSHA"}, {"EVALSHA", "ffff"}} {
			if err := client.Do(ctx, args...).Err(); err == nil {
				t.Errorf("%v is fine", args)
			}
		}
		known := redis.NewScript(`return 'known'`)
		known.Load(ctx, client)
		for _, keys := range []any{-1, 2, "x"} {
			if err := client.EvalSha(ctx, known.Hash(), nil).Err(); err != nil {
				t.Error(err)
			}
			if err := client.Do(ctx, "EVALSHA", known.Hash(), keys).Err(); err == nil {
				t.Errorf("%v keys are fine", keys)
			}
		}
		client.ScriptFlush(ctx)
		if err := client.EvalSha(ctx, known.Hash(), nil).Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
			t.Errorf("after a flush: %v", err)
		}
	})
}

// A script that is called in a transaction runs when that is executed, and one of a connection that selected another database in that.
func TestScriptsOfConnections(t *testing.T) {
	server := inprocess.New()
	t.Cleanup(server.Close)
	server.RequireAuth("secret")
	options := inprocess.Options(func() (net.Conn, error) { return inprocess.Dial(server) })
	options.Password = "secret"
	first := redis.NewClient(options)
	defer first.Close()
	other := *options
	other.DB = 1
	second := redis.NewClient(&other)
	defer second.Close()
	ctx := t.Context()
	add := redis.NewScript(`return redis.call('INCRBY', KEYS[1], ARGV[1])`)
	add.Load(ctx, first)
	var got []string
	for _, client := range []*redis.Client{first, second, first} {
		cmds, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Incr(ctx, "n")
			add.EvalSha(ctx, p, []string{"n"}, 10)
			return p.Incr(ctx, "n").Err()
		})
		if err != nil {
			t.Fatal(err)
		}
		n, err := add.EvalSha(ctx, client, []string{"n"}, 100).Int()
		got = append(got, fmt.Sprint(cmds[0].(*redis.IntCmd).Val(), cmds[1].(*redis.Cmd).Val(), cmds[2].(*redis.IntCmd).Val(), n, err))
	}
	if want := []string{"1 11 12 112 <nil>", "1 11 12 112 <nil>", "113 123 124 224 <nil>"}; !cmp.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A connection that selects another database, after it has called a script, calls the next one in that.
func TestAConnectionThatSelectsAnotherDatabase(t *testing.T) {
	client := redistest.Mini(t)
	conn := client.Conn()
	defer conn.Close()
	add := redis.NewScript(`return redis.call('INCR', KEYS[1])`)
	add.Load(t.Context(), client)
	for _, db := range []int{0, 1, 1, 0} {
		conn.Select(t.Context(), db)
		if err := add.EvalSha(t.Context(), conn, []string{"n"}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, db := range []int{0, 1} {
		conn.Select(t.Context(), db)
		if n := conn.Get(t.Context(), "n").Val(); n != "2" {
			t.Errorf("database %d counts %q, want 2", db, n)
		}
	}
}

// Scripts of many connections run one by one, each in the database of its own.
func TestScriptsOfManyConnections(t *testing.T) {
	server := inprocess.New()
	t.Cleanup(server.Close)
	add := redis.NewScript(`return redis.call('SET', KEYS[1], redis.call('INCR', KEYS[1]) + 1)`)
	var all sync.WaitGroup
	clients := make([]*redis.Client, 16)
	for db := range clients {
		options := inprocess.Options(func() (net.Conn, error) { return inprocess.Dial(server) })
		options.DB = db
		clients[db] = redis.NewClient(options)
		t.Cleanup(func() { clients[db].Close() })
		add.Load(t.Context(), clients[db])
		for range 4 {
			all.Go(func() {
				for range 25 {
					if err := add.EvalSha(t.Context(), clients[db], []string{"n"}).Err(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	for db, client := range clients {
		if n, err := client.Get(t.Context(), "n").Int(); n != 200 || err != nil {
			t.Errorf("database %d counts %d, %v", db, n, err)
		}
	}
}

// Who waits for a list is told what a script puts into it.
func TestAScriptWakesWhoWaits(t *testing.T) {
	client := redistest.Mini(t)
	push := redis.NewScript(`return redis.call('LPUSH', KEYS[1], ARGV[1])`)
	push.Load(t.Context(), client)
	got := make(chan error)
	go func() {
		values, err := client.BLPop(t.Context(), 0, "k").Result()
		if err == nil && values[1] != "x" {
			err = errors.New(values[1])
		}
		got <- err
	}()
	push.EvalSha(t.Context(), client, []string{"k"}, "x")
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// A server that is closed while connections call their first scripts ends, and nothing else does. The connections are made before:
// miniredis waits for ever for one that is made while it closes.
func TestAServerThatIsClosed(t *testing.T) {
	for range 200 {
		server := inprocess.New()
		client := inprocess.NewClient(server)
		sha, err := client.ScriptLoad(t.Context(), "return 1").Result()
		if err != nil {
			t.Fatal(err)
		}
		client.Close()
		reply := make([]byte, 64)
		var calls sync.WaitGroup
		for range 20 {
			conn, err := inprocess.Dial(server)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(conn, "*1\r\n$4\r\nPING\r\n")
			if n, err := conn.Read(reply); string(reply[:n]) != "+PONG\r\n" {
				t.Fatalf("%q, %v", reply[:n], err)
			}
			calls.Go(func() {
				fmt.Fprintf(conn, "*3\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n$1\r\n0\r\n", sha)
				io.Copy(io.Discard, conn) // 1, or nothing
				conn.Close()
			})
		}
		server.Close()
		calls.Wait()
	}
}
