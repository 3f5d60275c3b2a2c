package redistest

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// clockSource is a library that stands before the one with the wall clock.
//
//go:embed testdata/clock.c
var clockSource []byte

// A WallClock is that of one server. It can be set.
type WallClock struct {
	mu    sync.Mutex
	t     testing.TB
	file  string
	ahead time.Duration
}

// StartWithClock is [Start] of a server with a wall clock of its own. Where there is no C compiler
// the test is skipped, or fails if Required is set.
func StartWithClock(t testing.TB, args ...string) (*Server, *WallClock) {
	dir := t.TempDir()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	c := &WallClock{t: t, file: filepath.Join(dir, "ahead")}
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Step(0)
	if output, err := exec.Command("cc", "-shared", "-fPIC", "-O", "-o", library, source).CombinedOutput(); err != nil {
		if os.Getenv(Required) != "" {
			t.Fatalf("no C compiler, and %s is set: %v: %s", Required, err, output)
		}
		t.Skipf("no C compiler: %v", err)
	}
	return startIn(t, []string{"LD_PRELOAD=" + library, "WALL_CLOCK_AHEAD=" + c.file}, nil, withDefaults(t, args)), c
}

// Step sets the clock forward, or back.
func (c *WallClock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
	file, err := os.OpenFile(c.file, os.O_WRONLY|os.O_CREATE, 0o600) // the server has mapped it
	if err == nil {
		_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(c.ahead.Microseconds())), 0)
		file.Close()
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// Ahead returns by how much the clock is ahead of the machine's.
func (c *WallClock) Ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead
}
