package limits

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/waterclock/waterclock/internal/livefile"
	"github.com/waterclock/waterclock/throttle"
)

// A File is a policy file whose limits change when it does.
type File struct {
	// Logger gets what becomes of a changed file. nil is slog.Default().
	Logger *slog.Logger

	now  atomic.Pointer[Set]
	live livefile.File
}

// OpenFile reads the limits of a policy file as [FromFile] does. They change while Run runs.
func OpenFile(name string, limiter *throttle.Limiter) (*File, error) {
	f := &File{}
	f.live = livefile.File{Name: name, What: "limits", Use: func(text []byte) error {
		set, err := Parse(name, text, limiter)
		if err == nil {
			f.now.Store(set)
		}
		return err
	}}
	err := f.live.Load()
	if err != nil && !errors.Is(err, ErrInvalidFile) {
		err = fmt.Errorf("%w: %w", ErrInvalidFile, err)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Set returns the limits in force. Ask again for each action: they change when the file does. It is safe for concurrent use.
func (f *File) Set() *Set { return f.now.Load() }

// Run reads the file each second until ctx ends, and puts its limits in force when it has changed; it returns nil. A file that has a
// mistake is refused as a whole, with one line in the log: the limits in force stay. What rules have counted stays with the name of
// their limit ([throttle] says what a changed rule remembers).
func (f *File) Run(ctx context.Context) error {
	f.live.Logger = f.Logger
	return f.live.Run(ctx)
}
