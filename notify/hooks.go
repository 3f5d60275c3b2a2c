package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync/atomic"
)

// A panicError is a panic of the app's own code: of a [Sender], HandlerConfig.Forget or Sent,
// WebhookConfig.Secrets, FCMConfig.Token or Wire.Dial. It is an error of that call, and proves
// nothing about the provider.
type panicError struct {
	hook   string
	cause  any
	stack  []byte
	logged atomic.Bool // several messages may get one error
}

func (e *panicError) Error() string { return fmt.Sprintf("notify: %s panicked: %v", e.hook, e.cause) }

// contain calls a hook, and returns its panic as an error.
func contain(hook string, call func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = &panicError{hook: hook, cause: cause, stack: debug.Stack()}
		}
	}()
	return call()
}

// logPanic logs an error once if it is a panic's.
func logPanic(ctx context.Context, log *slog.Logger, err error, id string) {
	var p *panicError
	if errors.As(err, &p) && p.logged.CompareAndSwap(false, true) {
		log.ErrorContext(ctx, "a hook panicked", "id", id, "hook", p.hook, "panic", p.cause, "stack", string(p.stack))
	}
}

// containedDial returns a dial whose panics are errors. net/http dials in a goroutine of its own,
// where a panic ends the process.
func containedDial(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = contain("Wire.Dial", func() (err error) {
			c, err = dial(ctx, network, address)
			return err
		})
		return c, err
	}
}

// A containedLog is the app's handler of log records. A panic costs the record, and is written to
// standard error.
type containedLog struct{ slog.Handler }

func (l containedLog) Handle(ctx context.Context, r slog.Record) error {
	err := contain("HandlerConfig.Logger", func() error { return l.Handler.Handle(ctx, r) })
	var p *panicError
	if errors.As(err, &p) {
		fmt.Fprintf(os.Stderr, "%v\n%s", p, p.stack)
	}
	return err
}

func (l containedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return containedLog{l.Handler.WithAttrs(attrs)}
}

func (l containedLog) WithGroup(name string) slog.Handler {
	return containedLog{l.Handler.WithGroup(name)}
}
