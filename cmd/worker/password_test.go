package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/redistest"
)

// The password of Redis can stand in a file, which the environment can name.
func TestPasswordFile(t *testing.T) {
	server, file := redistest.StartWithPassword(t)
	t.Setenv("WATERCLOCK_PASSWORD_FILE", file)
	var out, diagnostics bytes.Buffer
	if err := run(t.Context(), []string{"--redis", server.URL(), "--sender", "log", "--drain", "--inbox=false"}, strings.NewReader(""), &out, &diagnostics); err != nil {
		t.Errorf("%v, %s", err, &diagnostics)
	}
	if strings.Contains(diagnostics.String(), redistest.Password) {
		t.Errorf("the password is in the log: %s", &diagnostics)
	}
}
