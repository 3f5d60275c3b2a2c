package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/simulate"
)

// worker --record writes down what anybody offers, as plan reads it.
func TestRecord(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	name := filepath.Join(t.TempDir(), "offers.jsonl")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"--redis", server.URL(), "--sender", "log", "--inbox=false", "--record", name}, nil, io.Discard, io.Discard)
	}()
	redistest.Eventually(t, 10*time.Second, "it records", func() bool {
		return client.HExists(t.Context(), "wc:{push}:meta", "recorded").Val()
	})
	producer, err := queue.NewClient(client, "push")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := producer.Enqueue(t.Context(), queue.Job{Tenant: "school-7", User: "teacher-42", Type: "push", Payload: []byte("secret"), Cost: 2},
		queue.Job{Tenant: "school-7", User: "teacher-43", Type: "push"}); err != nil {
		t.Fatal(err)
	}
	var lines []string
	redistest.Eventually(t, 10*time.Second, "both lines are there", func() bool {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines = strings.Split(strings.TrimSpace(string(text)), "\n")
		return len(lines) == 2
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	o, err := simulate.ReadOffer([]byte(lines[0]), "at", time.Time{})
	if err != nil || o.User != "teacher-42" || o.Cost != 2 || time.Since(o.At).Abs() > time.Minute || strings.Contains(lines[0], "secret") {
		t.Errorf("%s: %+v, %v", lines[0], o, err)
	}
	err = run(t.Context(), []string{"--redis", server.URL(), "--sender", "log", "--record", name, "--queue", "a", "--queue", "b"}, nil, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "want one --queue") {
		t.Error(err)
	}
}
