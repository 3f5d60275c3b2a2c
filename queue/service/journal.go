package service

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue"
)

// A Journal writes down each start, as a line of JSON. waterclock verify proves from it that the limits were
// kept:
//
//	{"id":"7","tenant":"school-7","user":"teacher-42","type":"push",
//	 "slot":"2026-11-21T08:00:00.250000Z","started_at":"2026-11-21T08:00:00.250412Z",
//	 "attempt":1,"waited_ms":250}
//
// A cost above 1, keys and costs follow, if the job has them. Times are on Redis's clock, in UTC, with microseconds.
type Journal struct {
	mu   sync.Mutex
	w    io.Writer
	line []byte
	torn bool // the last line was cut off
}

// NewJournal returns a journal that writes to w. Each line is one call of Write and nothing
// is held back: a worker that is killed loses none, and several may append to one file
// that each has opened with [os.O_APPEND].
func NewJournal(w io.Writer) *Journal { return &Journal{w: w} }

var errNoJob = errors.New("service: no job in the context; it runs only in a queue.Worker")

// Middleware writes a line for each start, and then runs the handler. Where the line cannot be written, the job runs all the
// same, and the log says so.
func (j *Journal) Middleware(log *slog.Logger) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			if info, ok := queue.FromContext(ctx); ok {
				if err := j.write(info); err != nil {
					cmp.Or(log, slog.Default()).Error("a start is not in the journal", "id", info.ID, "err", err)
				}
			}
			return next.ProcessTask(ctx, t)
		})
	}
}

// ProcessTask is a handler that does nothing but write the line, whatever the payload. A line that cannot be written is an
// attempt that failed.
func (j *Journal) ProcessTask(ctx context.Context, _ *asynq.Task) error {
	info, ok := queue.FromContext(ctx)
	if !ok {
		return fmt.Errorf("%w: %w", errNoJob, asynq.SkipRetry)
	}
	if err := j.write(info); err != nil {
		return fmt.Errorf("service: writing down a start: %w", err)
	}
	return nil
}

func (j *Journal) write(info queue.Info) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.line = j.line[:0]
	if j.torn {
		j.line = append(j.line, '\n')
	}
	j.line = appendStart(j.line, info)
	n, err := j.w.Write(j.line)
	j.torn = n < len(j.line) && (n > 0 || j.torn)
	return err
}

// appendStart writes the line by hand: encoding/json takes longer than all the rest.
func appendStart(b []byte, info queue.Info) []byte {
	b = appendQuoted(append(b, `{"id":`...), info.ID)
	b = appendQuoted(append(b, `,"tenant":`...), info.Tenant)
	b = appendQuoted(append(b, `,"user":`...), info.User)
	b = appendQuoted(append(b, `,"type":`...), info.Type)
	b = appendTime(append(b, `,"slot":`...), info.Slot)
	b = appendTime(append(b, `,"started_at":`...), info.Started)
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(info.Attempt), 10)
	b = strconv.AppendInt(append(b, `,"waited_ms":`...), info.Waited.Milliseconds(), 10)
	if info.Cost > 1 {
		b = strconv.AppendInt(append(b, `,"cost":`...), int64(info.Cost), 10)
	}
	b = appendFields(b, "keys", info.Keys, appendQuoted)
	b = appendFields(b, "costs", info.Costs, func(b []byte, n int) []byte { return strconv.AppendInt(b, int64(n), 10) })
	return append(b, "}\n"...)
}

// appendFields writes an object, in the order of its names; nothing if it is empty.
func appendFields[V any](b []byte, name string, fields map[string]V, write func([]byte, V) []byte) []byte {
	if len(fields) == 0 {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":{`...)
	for i, field := range slices.Sorted(maps.Keys(fields)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = write(append(appendQuoted(b, field), ':'), fields[field])
	}
	return append(b, '}')
}

func appendTime(b []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(b, `"2006-01-02T15:04:05.000000Z"`)
}

// appendQuoted writes a string of JSON. Bytes that are not UTF-8 become U+FFFD: JSON
// knows no other way.
func appendQuoted(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return append(b, quote(s)...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func quote(s string) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(s) // a string can always be written
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}
