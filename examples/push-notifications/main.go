// Command push-notifications tells the story that waterclock was made for, in under a
// minute: three schools share one queue of push notifications, one of them sends an
// announcement to thousands of parents at once, and nobody else notices.
//
// Read it in this order:
//
//	schools.go    who there is, and which limits each has
//	timetable.go  what happens when, and who offers which jobs
//	story.go      Redis, two workers, two kinds of producers: how it is wired
//	journal.go    the handler: it writes down each start, and delivers
//	providers.go  three providers, which speak the real protocols and make trouble
//	board.go      the live view
//	day.go        one teacher's timeline
//	verdict.go    the proof: throttle.Verify on the log of all starts
//	arrivals.go   and on what arrived at the providers
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

const usage = `Tells the story of three schools that share a queue of push notifications, and
proves that every limit was kept. Exit status 1 if one was not.

Usage: push-notifications [flags]

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "push-notifications:", err)
		os.Exit(1)
	}
}

// run is the program. It returns an error if anything went wrong, a broken rule above all.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := pflag.NewFlagSet("push-notifications", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage+flags.FlagUsages()) }
	url := flags.String("redis", "embedded", "a Redis to use, as redis://host:port/db")
	parents := flags.Int("parents", 2000, "how many parents the announcement goes to")
	cheat := flags.Bool("cheat", false, "add one false start to the log, to see the verdict find it")
	switch err := flags.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return nil
	case err != nil:
		return err
	case *parents < 1:
		return fmt.Errorf("--parents %d: at least 1", *parents)
	}

	client, closeRedis, err := openRedis(ctx, *url)
	if err != nil {
		return err
	}
	defer closeRedis()
	p, err := openProviders(client)
	if err != nil {
		return err
	}
	defer p.close()
	s := newStory(client, p, schools(), *parents)
	if err := s.tell(ctx, newBoard(stdout, s)); err != nil {
		return err
	}
	if *cheat {
		s.journal.forge()
	}
	return s.judge(ctx, stdout)
}
