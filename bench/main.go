// Command bench measures waterclock against what else there is, each scenario in one run
// on one Redis: rivals take turns, and what counts is the ratio between them.
//
//	go run . [--redis 127.0.0.1:6379] [--rounds 5] [scenario ...]
//
// Without --redis it starts a redis-server of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// A scenario answers one question.
type scenario struct {
	name, question string
	run            func(ctx context.Context, client *redis.Client, rounds int, out io.Writer) error
}

func scenarios() []scenario {
	return []scenario{
		{"decisions", "decisions per second, against redis_rate's single GCRA rule", runDecisions},
		{"memory", "bytes per subject of each rule, when full", runMemory},
		{"picture", "what each rule admits of one flood (writes " + pictureFile + ")", runPicture},
	}
}

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	addr := flags.String("redis", "", "address of a Redis that may be emptied; default: one of its own")
	rounds := flags.Int("rounds", 5, "rounds in which the rivals take turns")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *addr == "" {
		stop, started, err := startRedis(ctx)
		if err != nil {
			return err
		}
		defer stop()
		*addr = started
	}
	client := redis.NewClient(&redis.Options{Addr: *addr, PoolSize: 32})
	defer client.Close()
	for _, s := range scenarios() {
		if flags.NArg() > 0 && !slices.Contains(flags.Args(), s.name) {
			continue
		}
		fmt.Fprintf(out, "# %s: %s\n", s.name, s.question)
		if err := s.run(ctx, client, *rounds, out); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// startRedis starts a redis-server without persistence on a free port.
func startRedis(ctx context.Context) (stop func(), addr string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	addr = listener.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	listener.Close()
	server := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--loglevel", "warning")
	if err := server.Start(); err != nil {
		return nil, "", fmt.Errorf("starting redis-server: %w", err)
	}
	stop = func() { server.Process.Kill(); server.Wait() }
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	for range 500 {
		if client.Ping(ctx).Err() == nil {
			return stop, addr, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	return nil, "", errors.New("redis-server does not answer")
}
