//go:build unix

package config

import (
	"context"
	"io"
	"runtime"
	"syscall"
	"testing"
)

// A signal that comes twice at once, as timeout(1) and shells send it to a whole group, stops a
// command and does not kill it.
func TestASignalThatComesTwice(t *testing.T) {
	status := Main("command", func(ctx context.Context, _ []string, _ io.Reader, _, _ io.Writer) error {
		for range 3 { // soon: what comes after 0.2 s is another one, and kills
			if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			runtime.Gosched()
		}
		<-ctx.Done()
		return nil
	})
	if status != exitOK {
		t.Errorf("exit status %d", status)
	}
	// A command may have ended before it comes.
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	runtime.Gosched()
}
