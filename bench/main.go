// Command bench measures waterclock against what else there is. Each scenario answers
// one question in one run on one Redis: rivals take turns, round by round, and what
// counts is the ratio between them. See the usage.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/pflag"
)

const usage = `bench measures waterclock against plain asynq and redis_rate, in turns on one Redis.

Usage:
  go run ./bench [flags] [scenario ...]

Flags:
      --only NAME,...  these scenarios only; the same as naming them without the flag
      --rounds N       rounds in which the rivals take turns (default 5, with --quick 2)
      --quick          small sizes: everything in less than five minutes
      --json           print the result as JSON
      --redis ADDR     use the Redis at HOST:PORT, which is emptied again and again;
                       without it bench starts a redis-server of its own, and ends it
      --verbose        print what asynq, go-redis and the workers report
  -h, --help           print this

Scenarios:
%s
A ratio is that of the medians. Commands, those inside of scripts included, round trips
and Redis's CPU time are for one job, all the way from its offer to its acknowledgement,
or for one decision.
`

// A scenario answers one question.
type scenario struct {
	name, question string
	patience       time.Duration // for one round; it fails if that is not enough
	run            func(ctx context.Context, b *bench) error
}

func scenarios() []scenario {
	return []scenario{
		{name: "throughput", run: runThroughput, patience: 3 * time.Minute,
			question: "jobs per second with leak, window and spacing on, against plain asynq without limits"},
		{name: "concurrency", run: runConcurrency, patience: 2 * time.Minute,
			question: "the same with concurrency limits, against without: what it costs to know how much runs"},
		{name: "names", run: runNames, patience: 3 * time.Minute,
			question: "the same with two limits by name on every job, against without; lanes that wait for one that is used up"},
		{name: "partitions", run: runPartitions, patience: 4 * time.Minute,
			question: "what 16 partitions on one Redis cost, against one"},
		{name: "roundtrip", run: runRoundTrip, patience: 3 * time.Minute,
			question: "the same at a round trip of 1 ms, against one asynq server and against our own loopback"},
		{name: "middleware", run: runMiddleware, patience: 3 * time.Minute,
			question: "the same, against asynq with redis_rate for tenant and user in a middleware"},
		{name: "backlog", run: runBacklog, patience: 2 * time.Minute,
			question: "10,000 jobs wait for 50/s: commands per delivered job, against asynq's pattern for rate limits"},
		{name: "exactness", run: runExactness, patience: 2 * time.Minute,
			question: "start minus slot at 5,000 starts a second, against asynq's ProcessAt"},
		{name: "neighbour", run: runNeighbour, patience: 4 * time.Minute,
			question: "how long the jobs of quiet tenants wait when another one offers a million"},
		{name: "growth", run: runGrowth, patience: 5 * time.Minute,
			question: "what a job costs with a thousand lanes, and with a million"},
		{name: "takeover", run: runTakeover, patience: 10 * time.Minute,
			question: "how long nothing starts after kill -9 of the leader, with a million lanes and 100,000 tenants"},
		{name: "recovery", run: runRecovery, patience: 4 * time.Minute,
			question: "how soon jobs of a killed worker run again, and which after Redis was away, against asynq"},
		{name: "idle", run: runIdle, patience: 2 * time.Minute,
			question: "what a hundred idle workers send to Redis, and how soon one wakes up"},
		{name: "decisions", run: runDecisions, patience: 2 * time.Minute,
			question: "decisions per second, against redis_rate's single GCRA rule"},
		{name: "memory", run: runMemory, patience: 2 * time.Minute,
			question: "bytes per waiting job beyond its payload, and per subject of each rule"},
	}
}

// options are the flags.
type options struct {
	only          []string
	rounds        int
	quick         bool
	json, verbose bool
	address       string
}

func main() {
	if text := os.Getenv(roleVariable); text != "" {
		os.Exit(play(text))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if !o.verbose {
		logging.Disable() // go-redis's, about every connection that breaks
	}
	server, err := openServer(ctx, o.address)
	if err != nil {
		return err
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 64})
	defer client.Close()
	about, err := describe(ctx, client)
	if err != nil {
		return err
	}
	b := &bench{
		addr: server.Addr, client: client, rounds: o.rounds, quick: o.quick,
		verbose: o.verbose, progress: stderr,
		report: &report{Environment: about, Begun: time.Now().UTC(), Rounds: o.rounds, Quick: o.quick},
	}
	err = b.runAll(ctx, chosen(o.only))
	// What was measured before something failed is worth printing.
	if o.json {
		return errors.Join(err, b.report.writeJSON(stdout))
	}
	return errors.Join(err, b.report.writeTable(stdout))
}

func parse(args []string, stdout io.Writer) (options, error) {
	var o options
	flags := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	flags.StringSliceVar(&o.only, "only", nil, "")
	flags.IntVar(&o.rounds, "rounds", 0, "")
	flags.BoolVar(&o.quick, "quick", false, "")
	flags.BoolVar(&o.json, "json", false, "")
	flags.StringVar(&o.address, "redis", "", "")
	flags.BoolVar(&o.verbose, "verbose", false, "")
	flags.Usage = func() { fmt.Fprintf(stdout, usage, listScenarios()) }
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.only = append(o.only, flags.Args()...)
	for _, name := range o.only {
		if !slices.ContainsFunc(scenarios(), func(s scenario) bool { return s.name == name }) {
			return o, fmt.Errorf("there is no scenario %q; there are\n%s", name, listScenarios())
		}
	}
	if o.rounds < 0 {
		return o, fmt.Errorf("--rounds is %d; at least 1", o.rounds)
	}
	if o.rounds == 0 {
		o.rounds = 5
		if o.quick {
			o.rounds = 2
		}
	}
	return o, nil
}

func listScenarios() string {
	var b strings.Builder
	for _, s := range scenarios() {
		fmt.Fprintf(&b, "  %-11s %s\n", s.name, s.question)
	}
	return b.String()
}

// chosen returns the scenarios with these names, or all if there are none.
func chosen(names []string) (these []scenario) {
	for _, s := range scenarios() {
		if slices.Contains(names, s.name) || len(names) == 0 {
			these = append(these, s)
		}
	}
	return these
}
