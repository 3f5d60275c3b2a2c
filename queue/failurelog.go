package queue

import (
	"log/slog"
	"sync"
	"time"

	"github.com/waterclock/waterclock/queue/internal/errclass"
)

// failureLog warns of failed attempts, and of those that ask for a pause, of each class of errors
// a few times in a while and no more: when a provider is down, every job says the same.
type failureLog struct {
	mu      sync.Mutex
	classes map[string]*warned
}

// warned is how often was warned of a class since an instant, and how often not.
type warned struct {
	since     time.Time
	n, silent int
}

const (
	warnings    = 3                // of a class,
	warnWithin  = 10 * time.Second // in that time
	mostClasses = 200              // that are told apart
)

// warn warns of an attempt, and says what became of it, unless enough was said of the class of its
// error. The next warning of the class says how many were left out.
func (f *failureLog) warn(log *slog.Logger, what, text string, args ...any) {
	silent, speak := f.count(errclass.Of(text))
	if !speak {
		return
	}
	if silent > 0 {
		args = append(args, "more_of_the_kind", silent)
	}
	log.Warn(what, append(args, "err", clip(text))...)
}

// count counts a failure, and reports whether to speak of it and how many were left out.
func (f *failureLog) count(class string) (silent int, speak bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	w := f.classes[class]
	if w == nil {
		if len(f.classes) >= mostClasses || f.classes == nil {
			f.classes = make(map[string]*warned)
		}
		w = &warned{since: now}
		f.classes[class] = w
	}
	if now.Sub(w.since) >= warnWithin {
		silent = w.silent
		*w = warned{since: now}
	}
	if w.n++; w.n > warnings {
		w.silent++
		return 0, false
	}
	return silent, true
}
