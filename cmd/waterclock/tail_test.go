package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// tail prints what happens, of whom it is asked for, whatever names hold.
func TestTail(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	stop := c.work(10, func(_ context.Context, task *asynq.Task) error {
		if task.Type() == "fails" {
			return errors.New("out of paper")
		}
		return nil
	})
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"tail", "--tenant", "sch\x1bool", "--redis", c.url}, strings.NewReader(""), in, io.Discard)
		in.Close()
		ended <- err
	}()
	lines := bufio.NewScanner(out)
	next := make(chan string)
	go func() {
		for lines.Scan() {
			next <- lines.Text()
		}
		close(next)
	}()
	wanted := []string{" claimed ", "offered at 20", ", waited ", " started ", " done ", " failed ", "attempt 1", "out of paper", `sch\x1bool / teacher`}
	for deadline := time.After(20 * time.Second); len(wanted) > 0; {
		c.offer(queue.Job{Tenant: "sch\x1bool", User: "teacher", Type: "push"}, queue.Job{Tenant: "sch\x1bool", User: "teacher", Type: "fails"},
			queue.Job{Tenant: "other", User: "u", Type: "push"})
		select {
		case line := <-next:
			if strings.Contains(line, "other") || strings.Contains(line, "\x1b") {
				t.Errorf("%q", line)
			}
			left := wanted[:0]
			for _, text := range wanted {
				if !strings.Contains(line, text) {
					left = append(left, text)
				}
			}
			wanted = left
		case <-time.After(100 * time.Millisecond):
		case <-deadline:
			t.Fatalf("no line with %q", wanted)
		}
	}
	cancel()
	for range next { // what it prints at last
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// tail can be about one user, and end by itself: then its lines are what became of that user's jobs.
func TestTailForATime(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	c := openTerminal(t)
	defer c.work(10, func(context.Context, *asynq.Task) error { return nil })()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				c.offer(queue.Job{Tenant: "school", User: "ann", Type: "push"}, queue.Job{Tenant: "school", User: "ben", Type: "push"})
			}
		}
	}()
	var out bytes.Buffer
	if err := run(t.Context(), []string{"tail", "--user", "ann", "--for", "6s", "--json", "--redis", c.url}, strings.NewReader(""), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	kinds := make(map[watch.EventKind]int)
	for line := range strings.Lines(out.String()) {
		var e watch.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.User != "ann" {
			t.Errorf("%v: %s", err, line)
		}
		if kinds[e.Kind]++; e.Kind == watch.EventClaimed && (e.Offered.IsZero() || e.At.Before(e.Offered)) {
			t.Errorf("%+v", e)
		}
	}
	if kinds[watch.EventClaimed] == 0 || kinds[watch.EventStarted] == 0 || kinds[watch.EventDone] == 0 {
		t.Errorf("%v", kinds)
	}
	c.fails(2, "want a time such as 10m", "tail", "--for", "-1s")
}
