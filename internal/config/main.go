package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Exit statuses of the commands.
const (
	exitOK = iota
	exitFailure
	exitUsage
)

// sameSignal is for how long after a signal another one is taken for the same: timeout(1) and
// some shells send it to a process and to its group.
const sameSignal = 200 * time.Millisecond

// A Command is a whole program, without the process around it.
type Command func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error

// Main runs the command as this process and returns its exit status: 0, 1 if it failed,
// 2 if it was called the wrong way. The first SIGINT or SIGTERM ends its context; one that
// comes more than 0.2 s later kills it.
func Main(name string, run Command) int {
	// Commands say themselves what is wrong with Redis.
	redis.SetLogger(silence{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(sameSignal, stop) })
	defer func() {
		if ctx.Err() == nil { // otherwise the same signal may be on its way once more, and would kill what ends by itself
			stop()
		}
	}()
	return Report(name, run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr), os.Stderr)
}

// Report writes why a command failed, if it did, and returns the exit status.
func Report(name string, err error, stderr io.Writer) int {
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "%s: %v (%s --help shows how)\n", name, err, name)
		return exitUsage
	}
	fmt.Fprintf(stderr, "%s: %v\n", name, err)
	return exitFailure
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
