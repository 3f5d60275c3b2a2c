package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/waterclock/waterclock/internal/jobline"
	"github.com/waterclock/waterclock/queue"
)

// A batch is some lines of the input that stand next to each other: jobs, and what is
// wrong with the others.
type batch struct {
	jobs  []queue.Job
	lines []int   // of the jobs
	bad   []error // where and what, one for each line
	bytes int64   // of the input so far
	err   error   // the input ended with it; io.EOF is the regular end
}

// batchBytes bounds the memory of a batch of large payloads.
const batchBytes = 4 << 20

// reader cuts the input into batches.
type reader struct {
	name  string // of the input, for errors
	lines *lines
	size  int
	check func(queue.Job) error // what else can be wrong with a job
}

// run sends batches until the input or ctx ends, then closes the channel. A batch is
// smaller when the next line is not there yet: a job does not wait for others to come.
func (r *reader) run(ctx context.Context, out chan<- batch) {
	defer close(out)
	for {
		b := r.batch()
		select {
		case out <- b:
		case <-ctx.Done():
			return
		}
		if b.err != nil {
			return
		}
	}
}

func (r *reader) batch() (b batch) {
	size := int64(0)
	for len(b.jobs)+len(b.bad) < r.size && size < batchBytes {
		begin := r.lines.bytes
		line, err := r.lines.next()
		b.bytes = r.lines.bytes
		switch {
		case errors.Is(err, errTooLong):
			b.bad = append(b.bad, r.at(fmt.Errorf("the line is longer than %d bytes", jobline.MaxLine)))
			continue
		case err != nil:
			b.err = err
			return b
		}
		size += r.lines.bytes - begin
		if len(bytes.TrimSpace(line)) > 0 {
			r.add(&b, line)
		}
		if len(b.jobs)+len(b.bad) > 0 && !r.lines.ready() {
			return b
		}
	}
	return b
}

func (r *reader) add(b *batch, line []byte) {
	job, err := jobline.Parse(line)
	if err == nil && r.check != nil {
		err = r.check(job)
	}
	if err != nil {
		b.bad = append(b.bad, r.at(err))
		return
	}
	b.jobs = append(b.jobs, job)
	b.lines = append(b.lines, r.lines.number)
}

func (r *reader) at(err error) error {
	return fmt.Errorf("%s:%d: %w", r.name, r.lines.number, err)
}

// failure is why the input ended early, or nil.
func (b batch) failure() error {
	if b.err == nil || errors.Is(b.err, io.EOF) {
		return nil
	}
	return b.err
}
