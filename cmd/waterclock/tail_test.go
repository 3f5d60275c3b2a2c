package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue"
)

// tail prints what happens, of whom it is asked for, whatever names hold.
func TestTail(t *testing.T) {
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
	wanted := []string{" started ", " done ", " failed ", "attempt 1", "out of paper", `sch\x1bool / teacher`}
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
