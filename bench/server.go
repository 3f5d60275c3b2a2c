package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is a redis-server of our own, or one that somebody lends us.
type server struct {
	Addr string

	dir  string
	args []string
	cmd  *exec.Cmd // nil if it is lent
}

// openServer returns the Redis at the address, or one of our own without persistence if
// that is empty.
func openServer(ctx context.Context, addr string) (*server, error) {
	if addr == "" {
		return startServer(ctx, "--appendonly", "no")
	}
	s := &server{Addr: addr}
	if err := s.ping(ctx); err != nil {
		return nil, fmt.Errorf("the Redis at %s does not answer: %w", addr, err)
	}
	return s, nil
}

// startServer starts a redis-server on a free port of the loopback.
func startServer(ctx context.Context, args ...string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-redis-")
	if err != nil {
		return nil, err
	}
	s := &server{Addr: net.JoinHostPort("127.0.0.1", port), dir: dir}
	s.args = append([]string{
		"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--loglevel", "warning",
	}, args...)
	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Start starts the server, again after [server.Kill] with what it kept.
func (s *server) Start(ctx context.Context) error {
	cmd := exec.Command("redis-server", s.args...)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting redis-server, which has to be in PATH: %w", err)
	}
	s.cmd = cmd
	if err := s.ping(ctx); err != nil {
		return fmt.Errorf("the redis-server that was just started does not answer: %w", err)
	}
	return nil
}

// ping returns when the server answers.
func (s *server) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	for {
		err := client.Ping(ctx).Err()
		if err == nil || wait(ctx, 10*time.Millisecond) != nil {
			return err
		}
	}
}

// Kill ends the server at once, as kill -9 does.
func (s *server) Kill() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}

// Close ends the server and removes what it kept, if it is ours.
func (s *server) Close() error {
	s.Kill()
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// freePort returns a port on which nobody listens. It is below those that the system
// gives to outgoing connections: one of them could sit on the port of a server that is
// down for a while.
func freePort() (string, error) {
	const lowest, count = 10_000, 12_000
	for range 1000 {
		port := strconv.Itoa(lowest + rand.IntN(count))
		if listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			return port, listener.Close()
		}
	}
	return "", errors.New("no free port for redis-server")
}
