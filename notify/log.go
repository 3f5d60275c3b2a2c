package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/waterclock/waterclock/queue"
)

// Log is a sender that delivers nothing and writes down each start, as a line of JSON:
//
//	{"id":"7","tenant":"school-7","user":"teacher-42","type":"push",
//	 "slot":"2026-11-21T08:00:00.250000Z","started_at":"2026-11-21T08:00:00.250412Z",
//	 "attempt":1,"waited_ms":250}
//
// Times are on Redis's clock, in UTC, with microseconds. It is how a setup is tried out,
// and what throttle.Verify can prove the limits from.
type Log struct {
	mu   sync.Mutex
	w    io.Writer
	line []byte
	torn bool // the last line was cut off
}

// NewLog returns a sender that writes to w. Each line is one call of Write and nothing
// is held back: a worker that is killed loses none, and several may append to one file
// that each has opened with [os.O_APPEND].
func NewLog(w io.Writer) *Log { return &Log{w: w} }

func (*Log) anyPayload() {}

var errNoJob = errors.New("notify: no job in the context; Log runs only in a queue.Worker")

// Send writes the line. A line that cannot be written is an attempt that failed.
func (l *Log) Send(ctx context.Context, _ Message, _ Target) Outcome {
	info, ok := queue.FromContext(ctx)
	if !ok {
		return Outcome{Action: Drop, Err: errNoJob}
	}
	if err := l.write(info); err != nil {
		return Outcome{Action: Retry, Err: fmt.Errorf("notify: logging a start: %w", err)}
	}
	return Outcome{Action: Done}
}

func (l *Log) write(info queue.Info) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line = l.line[:0]
	if l.torn {
		l.line = append(l.line, '\n')
	}
	l.line = appendStart(l.line, info)
	n, err := l.w.Write(l.line)
	l.torn = n < len(l.line) && (n > 0 || l.torn)
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
	return append(b, "}\n"...)
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
