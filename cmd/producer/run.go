package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/queue"
)

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	o, helped, err := parseFlags(args, stdout)
	if helped || err != nil {
		return err
	}
	in, err := openInput(o.input, stdin)
	if err != nil {
		return err
	}
	defer in.Close()
	rdb, err := config.OpenRedis(ctx, o.redis)
	if err != nil {
		return err
	}
	defer rdb.Close()
	for _, warning := range rdb.Warnings {
		fmt.Fprintln(stderr, "producer: warning:", warning)
	}

	p := producer{options: o, stderr: stderr, summary: summary{Dropped: make(map[queue.Reason]int)}}
	client, err := queue.NewClient(rdb, o.queue, queue.ClientConfig{Durability: o.durability})
	if err != nil {
		return err
	}
	p.door = lanes(client)
	r := &reader{name: in.name, lines: newLines(in), size: o.batchSize()}
	if o.via == "asynq" {
		p.door, r.check = viaAsynq(rdb, o.queue), fitsAsynq
	}
	if !o.quiet {
		p.progress = newProgress(stderr, in.size)
	}
	failed := p.produce(ctx, r)
	p.progress.clear()
	if !o.quiet || o.json {
		failed = errors.Join(failed, p.summary.print(stdout, o.json))
	}
	if failed == nil && p.summary.Invalid > 0 {
		failed = fmt.Errorf("%d of %d lines were invalid", p.summary.Invalid, p.summary.Invalid+p.summary.Offered)
	}
	return failed
}

// input is where the jobs come from.
type input struct {
	io.ReadCloser
	name string
	size int64 // -1 if unknown
}

func openInput(name string, stdin io.Reader) (input, error) {
	if name == "-" {
		return input{io.NopCloser(stdin), "stdin", -1}, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return input{}, fmt.Errorf("--input: %w", err)
	}
	in := input{file, name, -1}
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		in.size = info.Size()
	}
	return in, nil
}

// batchSize is the size of a batch: at a low rate smaller, so that jobs are offered
// evenly and not a hundred every ten seconds.
func (o options) batchSize() int {
	if o.rate == 0 {
		return o.batch
	}
	return min(o.batch, max(1, int(o.rate/20)))
}

// producer offers batch after batch. There is never more than one on its way: users'
// jobs keep the order of the input.
type producer struct {
	options
	door     door
	stderr   io.Writer
	progress progress
	summary  summary
	last     int       // line of the last job that is known to have been offered
	due      time.Time // of the next batch, if there is a rate
}

// readAhead is how many batches are read while one is offered.
const readAhead = 2

// lastWords is how long a batch that is on its way gets when the producer is stopped.
const lastWords = 3 * time.Second

// produce offers everything and counts it.
func (p *producer) produce(ctx context.Context, r *reader) error {
	begin := time.Now()
	p.due = begin
	defer func() { p.summary.finish(time.Since(begin)) }()
	// A reader that waits for its input when ctx ends is left behind with it.
	reading, stop := context.WithCancel(ctx)
	defer stop()
	batches := make(chan batch, readAhead)
	go r.run(reading, batches)
	for {
		select {
		case <-ctx.Done():
			return p.interrupted()
		case b := <-batches:
			if err := p.pace(ctx); err != nil {
				return p.interrupted()
			}
			if err := p.offer(ctx, b); err != nil {
				return err
			}
			if b.err != nil {
				return b.failure()
			}
		}
	}
}

// catchUp is how much lost time is made up for. After a longer halt of the input, or of
// Redis, the rate goes on as if nothing had been missed.
const catchUp = time.Second

// pace waits until as much time has passed as the jobs so far may take.
func (p *producer) pace(ctx context.Context) error {
	if p.rate == 0 {
		return ctx.Err()
	}
	if oldest := time.Now().Add(-catchUp); p.due.Before(oldest) {
		p.due = oldest
	}
	timer := time.NewTimer(time.Until(p.due))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// offer reports what is wrong in a batch and offers the rest.
func (p *producer) offer(ctx context.Context, b batch) error {
	if len(b.bad) > 0 {
		p.progress.clear()
	}
	for _, bad := range b.bad {
		p.summary.Invalid++
		fmt.Fprintln(p.stderr, bad)
	}
	if len(b.jobs) == 0 {
		return nil
	}
	// Stopping lets the batch arrive: half of it offered is worse than all of it.
	offering, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWords, cancel) })()
	receipts, err := p.enter(offering, b.jobs)
	p.summary.count(receipts)
	if p.rate > 0 {
		p.due = p.due.Add(time.Duration(math.Ceil(float64(len(b.jobs)) / p.rate * float64(time.Second))))
	}
	if n := len(receipts); n > 0 {
		p.last = b.lines[n-1]
	}
	if err != nil {
		return p.unknown(b.lines[len(receipts):], err)
	}
	p.progress.at(b.bytes, p.summary.Offered)
	return nil
}

// longWait is when a batch has taken so long that people should know why.
const longWait = 2 * time.Second

// enter takes the jobs through the door, and says so if that takes long.
func (p *producer) enter(ctx context.Context, jobs []queue.Job) (receipts []queue.Receipt, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		receipts, err = p.door(ctx, jobs)
	}()
	patience := time.NewTimer(longWait)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
		p.progress.clear()
		silent := "Redis does not answer"
		if p.durability != (queue.Durability{}) {
			silent = "Redis does not answer, or has not yet got the jobs where they have to be"
		}
		fmt.Fprintf(p.stderr, "producer: %s; still trying\n", silent)
		<-done
	}
	return receipts, err
}

func (p *producer) interrupted() error {
	if p.last == 0 {
		return errors.New("interrupted before the first job was offered")
	}
	return fmt.Errorf("interrupted after line %d: everything up to it was offered, nothing after it", p.last)
}

// unknown is the error of a batch that may or may not have arrived.
func (p *producer) unknown(lines []int, err error) error {
	return fmt.Errorf("%w; %d jobs were offered before; whether those of lines %d to %d arrived is unknown, "+
		"and nothing after them was offered (jobs with an id can safely be offered again)",
		err, p.summary.Offered, lines[0], lines[len(lines)-1])
}
