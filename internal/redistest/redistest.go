// Package redistest gives tests their Redis: an in-process miniredis whose time is the
// test's, and a real redis-server of their own. Scripts must pass on both, since they
// differ (numbers to text, missing libraries, limits). It also has what such tests share to
// watch a program: its output ([Buffer]) and its commands ([Counter]).
package redistest

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/inprocess"
)

// Required is the environment variable that turns a missing redis-server from a
// skipped test into a failed one.
const Required = "WATERCLOCK_REQUIRE_REDIS"

// Each runs the test on miniredis and on a real redis-server, as subtests of these names.
func Each(t *testing.T, test func(t *testing.T, client redis.UniversalClient)) {
	t.Run("miniredis", func(t *testing.T) { test(t, ExactMini(t)) })
	t.Run("redis", func(t *testing.T) { test(t, Start(t).Client(t)) })
}

// Mini returns a client of a new in-process Redis. In a synctest bubble, its clock and
// its expiries follow the bubble's time. Keys expire up to 10 ms early.
func Mini(t testing.TB) *redis.Client { return mini(t, inprocess.New()) }

// ExactMini is like [Mini], and keys expire when they should: what limiters remember depends on it. It is slower with many keys.
func ExactMini(t testing.TB) *redis.Client { return mini(t, inprocess.NewExact()) }

func mini(t testing.TB, server *miniredis.Miniredis) *redis.Client {
	t.Cleanup(server.Close)
	return MiniClient(t, server)
}

// MiniClient returns one more client of an in-process Redis.
func MiniClient(t testing.TB, server *miniredis.Miniredis) *redis.Client {
	collectLess()
	client := inprocess.NewClient(server)
	t.Cleanup(func() { client.Close() })
	return client
}

// collectLess lets the test's process keep more garbage before it is collected, unless GOGC is set. Tests on virtual
// time make much of it in little time, and would spend a quarter of their time collecting it.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(800)
	}
}

// A Server is a real redis-server of a test's own, on a free port of the loopback.
type Server struct {
	Addr  string
	t     testing.TB
	args  []string
	env   []string // beside the test's own
	tls   *tls.Config
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
}

// Start starts a redis-server without persistence, or with what the extra arguments
// say, and ends it with the test. Where there is no redis-server the test is skipped,
// or fails if Required is set.
func Start(t testing.TB, args ...string) *Server {
	return start(t, nil, withDefaults(t, args))
}

// withDefaults returns the arguments of a server of a port, before others.
func withDefaults(t testing.TB, args []string) func(port string) []string {
	return func(port string) []string {
		return append([]string{
			"--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(),
			"--save", "", "--appendonly", "no", "--loglevel", "warning",
		}, args...)
	}
}

// Password is that of the servers of [StartWithPassword].
const Password = "hunter2"

// StartWithPassword starts a redis-server that asks for [Password], and writes the password into
// a file as the commands read it. [Server.Client] and [Server.URL] do not have it.
func StartWithPassword(t testing.TB) (s *Server, file string) {
	file = filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(Password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Start(t, "--requirepass", Password), file
}

// start starts a redis-server with the arguments that belong to a port.
func start(t testing.TB, tls *tls.Config, args func(port string) []string) *Server {
	return startIn(t, nil, tls, args)
}

// startIn is start with variables of the environment.
func startIn(t testing.TB, env []string, tls *tls.Config, args func(port string) []string) *Server {
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv(Required) != "" {
			t.Fatalf("no redis-server in PATH, and %s is set", Required)
		}
		t.Skip("no redis-server in PATH")
	}
	for range 5 {
		port := strconv.Itoa(freePort(t))
		s := &Server{Addr: net.JoinHostPort("127.0.0.1", port), t: t, args: args(port), env: env, tls: tls}
		t.Cleanup(s.Kill)
		if s.begin() && s.listens() {
			return s
		}
		s.Kill()
	}
	t.Fatal("no free port: other programs took all five that were tried")
	return nil
}

// listens reports whether the server is the one that answers: another test may have taken
// the port in the same moment.
func (s *Server) listens() bool {
	client := redis.NewClient(&redis.Options{Addr: s.Addr, TLSConfig: s.tls})
	defer client.Close()
	info, err := client.Info(context.Background(), "server").Result()
	return err != nil || strings.Contains(info, fmt.Sprintf("process_id:%d\r", s.cmd.Process.Pid)) // an error is one of passwords
}

// Resume starts the server again after [Server.Kill], with the data that it kept.
func (s *Server) Resume() {
	s.t.Helper()
	if !s.begin() {
		s.t.Fatal("redis-server has ended instead of answering")
	}
}

// begin starts the server and waits until something answers at its address. It reports false if the server has ended
// instead: it does so if another program has its port, be it for a moment.
func (s *Server) begin() bool {
	s.t.Helper()
	s.cmd, s.ended = exec.Command("redis-server", s.args...), make(chan struct{})
	s.cmd.Env = append(os.Environ(), s.env...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("starting redis-server: %v", err)
	}
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait() // how it has ended does not matter
		close(ended)
	}(s.cmd, s.ended)
	client := redis.NewClient(&redis.Options{Addr: s.Addr, TLSConfig: s.tls})
	defer client.Close()
	answers := false
	Eventually(s.t, 10*time.Second, "redis-server answers, or ends", func() bool {
		err := client.Ping(context.Background()).Err()
		answers = err == nil || redis.IsAuthError(err)
		select {
		case <-s.ended:
			return true
		default:
			return answers
		}
	})
	return answers
}

// Kill ends the server at once, as kill -9 does.
func (s *Server) Kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(syscall.SIGKILL) // it may have ended
		<-s.ended
	}
}

// Freeze stops the server until the returned function lets it go on, as a machine without CPU time would.
func (s *Server) Freeze() (goOn func()) {
	s.cmd.Process.Signal(syscall.SIGSTOP)
	return func() { s.cmd.Process.Signal(syscall.SIGCONT) }
}

// StartReplica starts a redis-server that follows another one, waits until it does, and ends it with the test.
func (s *Server) StartReplica(t testing.TB, args ...string) *Server {
	t.Helper()
	ctx, client := context.Background(), s.Client(t)
	if err := client.ConfigSet(ctx, "repl-diskless-sync-delay", "0").Err(); err != nil {
		t.Fatal(err)
	}
	online := func() int { return strings.Count(client.Info(ctx, "replication").Val(), "state=online") }
	before := online()
	host, port, _ := net.SplitHostPort(s.Addr)
	replica := Start(t, append([]string{"--replicaof", host + " " + port}, args...)...)
	Eventually(t, 20*time.Second, "the replica follows", func() bool { return online() > before })
	return replica
}

// Client returns a new client of the server.
func (s *Server) Client(t testing.TB) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: s.Addr, TLSConfig: s.tls})
	t.Cleanup(func() { client.Close() })
	return client
}

// URL returns the server's address as the commands take it.
func (s *Server) URL() string { return fmt.Sprintf("redis://%s/0", s.Addr) }

// Eventually waits until the condition holds and fails the test if it does not in time.
func Eventually(t testing.TB, within time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain until %s", within, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// freePort returns a port on which nobody listens, nor on the one that a cluster's node
// opens beside it. It is below those that the system gives to outgoing connections: one
// of them could sit on the port of a server that is down for a while.
func freePort(t testing.TB) int {
	const lowest, count, busOffset = 10_000, 12_000, 10_000
	for range 1000 {
		port := lowest + rand.IntN(count)
		if isFree(port) && isFree(port+busOffset) {
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

func isFree(port int) bool {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err == nil {
		listener.Close()
	}
	return err == nil
}
