package config

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	tests := map[string]target{
		"redis://localhost":                 {scheme: "redis", hosts: []string{"localhost:6379"}},
		"redis://:s%2Fcret@10.0.0.1:7000/3": {scheme: "redis", hosts: []string{"10.0.0.1:7000"}, rest: "/3", password: "s/cret"},
		"rediss://me:p@ss@[::1]?pool_size=5": {
			scheme: "rediss", hosts: []string{"[::1]:6379"}, rest: "?pool_size=5", user: "me", password: "p@ss",
		},
		"redis-sentinel://me:pw@a,b:7/2?master=m": {
			kind: "sentinel", scheme: "redis", hosts: []string{"a:26379", "b:7"}, rest: "/2?master=m", user: "me", password: "pw",
		},
		"rediss-cluster://a,b:7,[::1]:8": {kind: "cluster", scheme: "rediss", hosts: []string{"a:6379", "b:7", "[::1]:8"}},
	}
	for raw, want := range tests {
		got, err := parseURL(raw)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(target{})); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", raw, err, diff)
		}
	}
}

func TestClients(t *testing.T) {
	t.Parallel()
	open := func(raw string) redis.UniversalClient {
		t.Helper()
		r, err := parseURL(raw)
		if err != nil {
			t.Fatal(err)
		}
		client, err := r.client()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		return client
	}
	one := open("rediss://me:pw@a:7/3?pool_size=5").(*redis.Client).Options()
	if one.Addr != "a:7" || one.Username != "me" || one.Password != "pw" || one.DB != 3 || one.PoolSize != 5 || one.TLSConfig == nil {
		t.Errorf("single: %+v", one)
	}
	sentinel := open("redis-sentinel://me:pw@a,b/2?master=m&sentinel_password=spw").(*redis.Client).Options()
	if sentinel.Username != "me" || sentinel.Password != "pw" || sentinel.DB != 2 {
		t.Errorf("sentinel: %+v", sentinel)
	}
	cluster := open("rediss-cluster://me:pw@a,b:7").(*redis.ClusterClient).Options()
	if cmp.Diff(cluster.Addrs, []string{"a:6379", "b:7"}) != "" || cluster.Password != "pw" || cluster.TLSConfig.ServerName != "" {
		t.Errorf("cluster: %+v", cluster)
	}
}

// Every message says what would be right, none the password, and all are errors of the
// caller: exit status 2.
func TestBadURL(t *testing.T) {
	t.Parallel()
	const escape = "the user or password holds a character that must be percent-encoded, such as %2F for /"
	tests := map[string]string{
		"":                                        errURL.Error(),
		"localhost:6379":                          errURL.Error(),
		"http://localhost":                        errURL.Error(),
		"unix:///tmp/redis.sock":                  errURL.Error(),
		"redis-://a":                              errURL.Error(),
		"redis-ring://a":                          errURL.Error(),
		"redis://":                                `host "": want HOST or HOST:PORT`,
		"redis://a:port":                          `host "a:port": want HOST or HOST:PORT`,
		"redis://a,b":                             "several hosts: want redis-sentinel:// or redis-cluster://",
		"redis://a/zero":                          `invalid database number: "zero"`,
		"redis://a/0?colour=red":                  "unexpected option: colour",
		"redis://me:hunter2/x@a:6379":             escape,
		"redis://me:1234#hunter2@a":               escape,
		"redis://me:hunter2%zz@a":                 escape,
		"redis://me:hunter2@a/zero":               `invalid database number: "zero"`,
		"redis://me:hunter2@a b":                  `host "a b": want HOST or HOST:PORT`,
		"redis-sentinel://me:hunter2@a,b/0":       "a redis-sentinel URL needs the name of its master: ?master=NAME",
		"redis-sentinel://a?master=m&hunter=2":    "unexpected option: hunter",
		"redis-cluster://a,b/1":                   "a Redis Cluster has only database 0",
		"redis-cluster://a,,b":                    `host "": want HOST or HOST:PORT`,
		"redis-cluster://a,b?read_timeout=a+year": `invalid read_timeout duration: time: invalid duration "a year"`,
	}
	for raw, want := range tests {
		_, err := OpenRedis(t.Context(), raw)
		if err == nil || err.Error() != "--redis: "+want {
			t.Errorf("%s:\n got %v\nwant --redis: %s", raw, err, want)
			continue
		}
		var usage usageError
		if !errors.As(err, &usage) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %#v", raw, err)
		}
	}
}

func FuzzBadURL(f *testing.F) {
	f.Add("redis://me:", "@a:6379/0")
	f.Add("redis-sentinel://:", "@a,b/0?master=m")
	f.Add("redis://me:1/", "#x@a")
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "hunter2hunter2"
		if !strings.Contains(before, "://") || !strings.HasPrefix(after, "@") || strings.Contains(before, "@") {
			return
		}
		r, err := parseURL(before + secret + after)
		if err == nil {
			var client redis.UniversalClient
			if client, err = r.client(); err == nil {
				client.Close()
				return
			}
		}
		if strings.Contains(err.Error(), secret) {
			t.Fatalf("%s…%s: %v", before, after, err)
		}
	})
}

func TestUnreachable(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	begin := time.Now()
	_, err = OpenRedis(t.Context(), "redis://me:hunter2@"+address+"/0")
	if want := "no Redis at " + address + ": connection refused"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if took := time.Since(begin); took > 6*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestOpenRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	if err := server.Client(t).ConfigSet(t.Context(), "requirepass", "hunter2").Err(); err != nil {
		t.Fatal(err)
	}
	_, err := OpenRedis(t.Context(), "redis://:hunter3@"+server.Addr)
	if err == nil || !strings.HasPrefix(err.Error(), "the Redis at "+server.Addr+" refuses: WRONGPASS") || strings.Contains(err.Error(), "hunter3") {
		t.Errorf("the wrong password: %v", err)
	}
	r, err := OpenRedis(t.Context(), "redis://:hunter2@"+server.Addr)
	if err != nil || len(r.Warnings) > 0 || r.Address != server.Addr {
		t.Fatalf("%v, %v", r, err)
	}
	defer r.Close()
	if err := r.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	warned, err := OpenRedis(t.Context(), "redis://:hunter2@"+server.Addr)
	if err != nil || len(warned.Warnings) != 1 || !strings.HasPrefix(warned.Warnings[0], "maxmemory-policy is allkeys-lru: ") {
		t.Fatalf("%v, %v", warned, err)
	}
	warned.Close()
}

func TestEmbedded(t *testing.T) {
	t.Parallel()
	r, err := OpenRedis(t.Context(), Embedded)
	if err != nil {
		t.Fatal(err)
	}
	// Others can reach it.
	other, err := OpenRedis(t.Context(), "redis://"+r.Address)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Set(t.Context(), "mark", t.Name(), 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	// Another server may have been given its port by now.
	if mark, err := other.Get(t.Context(), "mark").Result(); err == nil && mark == t.Name() {
		t.Error("it goes on after Close")
	}
	other.Close()
}

func TestCheckServer(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ warning, err string }{
		"# Server\r\nredis_version:7.0.15\r\nmaxmemory_policy:noeviction\r\n": {},
		"redis_version:6.2.0\r\n":  {},
		"redis_version:10.0\r\n":   {},
		"redis_version:odd\r\n":    {},
		"":                         {},
		"redis_version:6.0.16\r\n": {err: "is version 6.0.16; want 6.2 or newer"},
		"redis_version:5.0.7\r\n":  {err: "is version 5.0.7; want 6.2 or newer"},
		"redis_version:7.2.4\r\nmaxmemory_policy:volatile-lru\r\n": {
			warning: "maxmemory-policy is volatile-lru: when its memory is full, Redis will throw waiting jobs away; want noeviction",
		},
	}
	for info, want := range tests {
		warning, err := checkServer(info)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if warning != want.warning || text != want.err {
			t.Errorf("%q: %q, %v", info, warning, err)
		}
	}
}

// oldRedis answers as a Redis that is too old.
func oldRedis(t *testing.T) (address string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answer(conn)
		}
	}()
	return listener.Addr().String()
}

func answer(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		switch word := strings.ToLower(lines.Text()); word {
		case "ping":
			conn.Write([]byte("+PONG\r\n"))
		case "info":
			conn.Write([]byte("$21\r\nredis_version:5.0.7\r\n\r\n"))
		case "hello", "client":
			conn.Write([]byte("-ERR unknown command\r\n"))
		}
	}
}

func TestOldServer(t *testing.T) {
	t.Parallel()
	address := oldRedis(t)
	_, err := OpenRedis(t.Context(), "redis://"+address)
	if want := "the Redis at " + address + " is version 5.0.7; want 6.2 or newer"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	tests := []struct {
		err    error
		status int
		want   string
	}{
		{nil, 0, ""},
		{errors.New("no Redis"), 1, "worker: no Redis\n"},
		{Usagef("--batch %d", 0), 2, "worker: --batch 0 (worker --help shows how)\n"},
	}
	for _, tt := range tests {
		var stderr bytes.Buffer
		if got := Report("worker", tt.err, &stderr); got != tt.status || stderr.String() != tt.want {
			t.Errorf("%v: status %d, %q", tt.err, got, stderr.String())
		}
	}
}

// A password in a file opens Redis as one in the URL does, and stands in no error.
func TestPasswordFile(t *testing.T) {
	t.Parallel()
	const secret = "hunter2@/:%é"
	server := redistest.Start(t)
	if err := server.Client(t).ConfigSet(t.Context(), "requirepass", secret).Err(); err != nil {
		t.Fatal(err)
	}
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, url := range []string{"redis://" + server.Addr, "redis://default@" + server.Addr + "/0?read_timeout=5s"} {
		with, err := WithPassword(url, file(secret+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := OpenRedis(t.Context(), with)
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
	if url, err := WithPassword("redis://"+server.Addr, ""); err != nil || url != "redis://"+server.Addr {
		t.Errorf("without a file: %s, %v", url, err)
	}
	for want, give := range map[string][2]string{
		"the URL has a password already": {"redis://:x@" + server.Addr, file(secret)},
		"no such file":                   {"redis://" + server.Addr, "/nowhere"},
		"want one line":                  {"redis://" + server.Addr, file("\n")},
		"one line":                       {"redis://" + server.Addr, file(secret + "\n" + secret)},
		"has no password":                {Embedded, file(secret)},
		"--redis: want a URL":            {"nonsense", file(secret)},
	} {
		_, err := WithPassword(give[0], give[1])
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, want %s", give[0], err, want)
		}
	}
}

func TestToken(t *testing.T) {
	t.Setenv("WATERCLOCK_TOKEN", "from the environment")
	if token, err := Token(""); token != "from the environment" || err != nil {
		t.Errorf("%q, %v", token, err)
	}
	if _, err := Token("/nowhere"); err == nil || !strings.HasPrefix(err.Error(), "--token-file: ") {
		t.Error(err)
	}
}
