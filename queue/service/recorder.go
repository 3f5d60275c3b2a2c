package service

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/waterclock/waterclock/internal/jobline"
	"github.com/waterclock/waterclock/queue/simulate"
	"github.com/waterclock/waterclock/queue/watch"
)

// A Recorder writes down what is offered to a queue, by whomever, as lines of producer without payloads: waterclock plan tries
// other policies on them. One recorder of a queue is enough.
type Recorder struct {
	Watcher *watch.Watcher // of the queue
	Out     io.Writer
	Logger  *slog.Logger // nil is slog.Default()
}

// Run records until ctx ends. What cannot be read or written is in the log, and stops nothing.
func (r Recorder) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := r.Watcher.Offers(ctx, r.write); err != nil {
			r.log().Error("offers are not recorded; trying again", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}

func (r Recorder) write(offered []simulate.Offer, missed int) error {
	if missed > 0 {
		r.log().Warn("offers came faster than they could be recorded", "missing", missed)
	}
	var lines []byte
	for _, o := range offered {
		lines = append(lines, jobline.Record(o)...)
	}
	_, err := r.Out.Write(lines)
	return err
}

func (r Recorder) log() *slog.Logger { return cmp.Or(r.Logger, slog.Default()) }
