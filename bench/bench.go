package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"
)

// A bench is what the scenarios of one run share.
type bench struct {
	addr     string
	client   *redis.Client
	rounds   int
	quick    bool
	verbose  bool
	progress io.Writer
	report   *report

	scenario string // the one that runs
}

// runAll runs the scenarios one after the other and leaves an empty Redis behind. One
// that fails does not keep the others from running.
func (b *bench) runAll(ctx context.Context, these []scenario) error {
	var failed error
	for _, s := range these {
		if ctx.Err() != nil {
			break
		}
		b.scenario = s.name
		begin := time.Now()
		fmt.Fprintf(b.progress, "%s: %s\n", s.name, s.question)
		limit := time.Duration(b.rounds) * s.patience
		within, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it is not done after %v", limit))
		err := s.run(within, b)
		if err != nil && within.Err() != nil {
			err = errors.Join(context.Cause(within), err)
		}
		cancel()
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", s.name, err))
			b.report.measured()
		}
		if err := b.empty(context.WithoutCancel(ctx)); err != nil {
			return errors.Join(failed, err)
		}
		fmt.Fprintf(b.progress, "%s took %v\n\n", s.name, time.Since(begin).Round(100*time.Millisecond))
	}
	return errors.Join(failed, ctx.Err())
}

// size is how much to take of something.
func (b *bench) size(full, quick int) int {
	if b.quick {
		return quick
	}
	return full
}

// span is how long to look at something.
func (b *bench) span(full, quick time.Duration) time.Duration {
	if b.quick {
		return quick
	}
	return full
}

// empty empties Redis.
func (b *bench) empty(ctx context.Context) error {
	if err := b.client.FlushAll(ctx).Err(); err != nil {
		return fmt.Errorf("emptying Redis: %w", err)
	}
	return nil
}

// row adds a row to the report of the scenario.
func (b *bench) row(what, unit string) *row {
	r := &row{Scenario: b.scenario, What: what, Unit: unit}
	b.report.Rows = append(b.report.Rows, r)
	return r
}

// note tells whoever watches what was just measured.
func (b *bench) note(format string, args ...any) {
	fmt.Fprintf(b.progress, "  "+format+"\n", args...)
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
