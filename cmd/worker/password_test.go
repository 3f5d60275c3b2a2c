package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/redistest"
)

// The password of Redis can stand in a file, which the environment can name.
func TestPasswordFile(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "hunter2")
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("WATERCLOCK_PASSWORD_FILE", file)
	var out, diagnostics bytes.Buffer
	if err := run(t.Context(), []string{"--redis", server.URL(), "--sender", "log", "--drain", "--inbox=false"}, strings.NewReader(""), &out, &diagnostics); err != nil {
		t.Errorf("%v, %s", err, &diagnostics)
	}
	if strings.Contains(diagnostics.String(), "hunter2") {
		t.Errorf("the password is in the log: %s", &diagnostics)
	}
}
