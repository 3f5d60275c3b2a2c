package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/redistest"
)

// The password of Redis can stand in a file.
func TestPasswordFile(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "hunter2")
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
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
