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
//	moment.go     notes that wait for a morning, and replies that are one notification
//	verdict.go    the proof: throttle.Verify on the log of all starts
//	arrivals.go   and on what arrived at the providers
//	yours.go      devices of your own, behind a real provider
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

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
	o, helped, err := parseFlags(args, stderr)
	if helped || err != nil {
		return err
	}
	return play(ctx, o, stdout, stderr)
}

// play tells the story and judges it.
func play(ctx context.Context, o options, stdout, stderr io.Writer) error {
	client, closeRedis, err := openRedis(ctx, o.redis)
	if err != nil {
		return err
	}
	defer closeRedis()
	p, err := openProviders(client)
	if err != nil {
		return err
	}
	defer p.close()
	if o.provider != "" {
		if err := p.bring(o, client); err != nil {
			return err
		}
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := newStory(client, p, schools(), o.parents)
	if err != nil {
		return err
	}
	if err := s.tell(ctx, newBoard(stdout, s), log); err != nil {
		return err
	}
	if o.cheat {
		s.journal.forge()
	}
	return s.judge(ctx, stdout)
}
