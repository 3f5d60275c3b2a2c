package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/redistest"
)

// The password of Redis can stand in a file.
func TestPasswordFile(t *testing.T) {
	server, file := redistest.StartWithPassword(t)
	line := `{"tenant":"t","user":"u","type":"push"}`
	var out, diagnostics bytes.Buffer
	err := run(t.Context(), []string{"--redis", server.URL(), "--password-file", file, "--json"}, strings.NewReader(line), &out, &diagnostics)
	if err != nil || !strings.Contains(out.String(), `"accepted":1`) {
		t.Errorf("%v, %s, %s", err, &out, &diagnostics)
	}
	if err := run(t.Context(), []string{"--redis", server.URL()}, strings.NewReader(line), &out, &diagnostics); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("without it: %v", err)
	}
}
