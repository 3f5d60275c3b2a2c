package main

import (
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/redistest"
)

// doctor names what is wrong with the keys and what a repair does, repairs it when it is told to,
// and works where a key of the queue itself is broken.
func TestDoctorRepairs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(t), t.Context()
	doctor := func(args ...string) string {
		var out strings.Builder
		err := run(ctx, append([]string{"doctor", "--redis", server.URL(), "--queue", "q"}, args...), strings.NewReader(""), &out, &out)
		if err == nil || !strings.Contains(err.Error(), "need a look") { // there are no workers
			t.Errorf("%v: %s", err, &out)
		}
		return out.String()
	}
	if out := doctor(); !strings.Contains(out, "types, indexes, claims, states and counters are as they should be") {
		t.Errorf("an empty queue: %s", out)
	}
	client.Set(ctx, "wc:{q}:meta", "x", 0)
	client.RPush(ctx, "wc:{q}:lane:t:u", "job")
	if out := doctor(); !strings.Contains(out, "type wc:{q}:meta") || !strings.Contains(out, "--repair: it is put into the index") || !strings.Contains(out, "is not a hash") {
		t.Errorf("damaged: %s", out)
	}
	if out := doctor("--repair", "--json"); !strings.Contains(out, `"repaired: a string"`) || !strings.Contains(out, "are as they should be") {
		t.Errorf("repaired: %s", out)
	}
	if kept := client.Get(ctx, "wc:{q}:broken:meta").Val(); kept != "x" {
		t.Errorf("what was there is %q", kept)
	}
	if out := doctor(); strings.Contains(out, "!!  type") || strings.Contains(out, "--repair:") {
		t.Errorf("afterwards: %s", out)
	}
}
