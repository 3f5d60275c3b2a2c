package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/strictjson"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/access"
	"github.com/waterclock/waterclock/queue/watch"
)

// A call is one request.
type call struct {
	ctx   context.Context
	w     http.ResponseWriter
	r     *http.Request
	h     *handler
	query url.Values
	body  []byte
	token access.Token
	bad   error // the first parameter that is wrong

	queue     string
	inspector *watch.Watcher // nil where the path names no queue
	author    string         // who changes something
}

// open looks at the path, the token, the query and the body.
func (c *call) open(op operation) (err error) {
	c.queue = c.r.PathValue("queue") // "" where the path names none
	if err := c.allowed(op); err != nil {
		return err
	}
	if c.query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil {
		return problemf(http.StatusBadRequest, "invalid-query", "the query cannot be read: %v", err)
	}
	for name, values := range c.query {
		switch {
		case !slices.Contains(op.query, name):
			want := "want none"
			if len(op.query) > 0 {
				want = "want " + strings.Join(op.query, ", ")
			}
			return badParameter(name, "unknown parameter", want)
		case len(values) > 1 && name != repeated:
			return badParameter(name, "appears twice", "want it once")
		}
	}
	if strings.Contains(op.path, "{queue}") {
		if len(c.h.cfg.Queues) > 0 && !slices.Contains(c.h.cfg.Queues, c.queue) {
			return problemf(http.StatusNotFound, "no-such-queue", "queue %q is not served here", c.queue)
		}
		if c.inspector, err = watch.New(c.h.cfg.Redis, c.queue); err != nil {
			return problemf(http.StatusNotFound, "no-such-queue", "%s", plain(err))
		}
	}
	if op.in != nil {
		return c.readBody(op.kind.body)
	}
	return nil
}

// repeated is the parameter that may appear several times: the values of a limit's key.
const repeated = "key"

func badParameter(name, detail, remedy string) *Problem {
	p := problemf(http.StatusBadRequest, "invalid-query", "%s: %s; %s", name, detail, remedy)
	p.Errors = []FieldError{{Parameter: name, Detail: detail, Remedy: remedy}}
	return p
}

// refuse notes that a parameter is wrong.
func (c *call) refuse(name, detail, remedy string) {
	if c.bad == nil {
		c.bad = badParameter(name, detail, remedy)
	}
}

// text returns a parameter, "" if it is missing.
func (c *call) text(name string) string { return c.query.Get(name) }

// required returns a parameter that must be there.
func (c *call) required(name string) string {
	value := c.query.Get(name)
	if value == "" {
		c.refuse(name, "is missing", "want a name")
	}
	return value
}

// number returns a parameter that is a number.
func (c *call) number(name string, usual, least, most int) int {
	text, ok := c.query[name]
	if !ok {
		return usual
	}
	n, err := strconv.Atoi(text[0])
	if err != nil || n < least || n > most {
		c.refuse(name, fmt.Sprintf("is %.40q", text[0]), fmt.Sprintf("want a whole number from %d to %d", least, most))
	}
	return n
}

// page returns which part of a list is asked for.
func (c *call) page() (from, n int) {
	return c.number("from", 0, 0, 1_000_000), c.number("n", 20, 1, 1000)
}

// readBody reads the body of a request, which is not too long and does not take too long.
func (c *call) readBody(most int64) (err error) {
	control := http.NewResponseController(c.w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime)) // where the server can
	c.body, err = io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, most))
	if err != nil {
		// The server reads what is left of a body before it answers: the deadline stays for that.
		c.w.Header().Set("Connection", "close")
	} else {
		_ = control.SetReadDeadline(time.Time{})
	}
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return problemf(http.StatusRequestEntityTooLarge, "too-long", "the body has more than %d bytes; want several requests", long.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problemf(http.StatusRequestTimeout, "too-slow", "the body did not come within %v", bodyTime)
	case err != nil:
		return problemf(http.StatusBadRequest, "invalid-body", "the body could not be read")
	}
	return nil
}

// The kinds of bodies.
const (
	kindJSON  = "application/json"
	kindLines = "application/x-ndjson"
)

// kind returns the kind of the body, which is one of those that are wanted.
func (c *call) kind(wanted ...string) (string, error) {
	kind, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if !slices.Contains(wanted, kind) {
		return "", problemf(http.StatusUnsupportedMediaType, "content-type", "the body is %q; want Content-Type: %s", kind, strings.Join(wanted, " or "))
	}
	return kind, nil
}

// read reads the body as JSON, strictly.
func (c *call) read(into any) error {
	switch raw := into.(type) {
	case *jobsBody:
		return c.readJobs(raw)
	case *actionsBody:
		return c.readActions(raw)
	}
	if _, err := c.kind(kindJSON); err != nil {
		return err
	}
	if err := decode(c.body, into); err != nil {
		return invalidBody(c.body, err)
	}
	return nil
}

// invalidBody is the problem of a body that one error is about.
func invalidBody(body []byte, err error) *Problem {
	p := problemf(http.StatusBadRequest, "invalid-body", "the body is wrong: %v", err)
	p.Errors = []FieldError{fieldError(body, "", 0, err)}
	return p
}

// fieldError says where in the body an error is: offset is where the object begins that it is
// about, and pointer what that is.
func fieldError(body []byte, pointer string, offset int, err error) FieldError {
	what, want := strictjson.Parts(err)
	var wrong *strictjson.Error
	if errors.As(err, &wrong) {
		what, want = strictjson.Parts(wrong.Err)
		offset += wrong.Offset
		if wrong.Field != "" {
			pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(clip(wrong.Field))
		}
	}
	before := string(body[:min(offset, len(body))])
	return FieldError{
		Pointer: pointer, Line: strings.Count(before, "\n") + 1, Column: len(before) - strings.LastIndex(before, "\n"),
		Detail: what, Remedy: want,
	}
}

// clip bounds a name that a client has sent, in an answer.
func clip(name string) string {
	const most = 100
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}

// note says who changes something and why, for pauses and policies.
func (c *call) note(author, reason string) *watch.Watcher {
	c.author = cmp.Or(c.token.Author(author), "HTTP")
	return c.inspector.As(queue.Note{Author: c.author, Reason: reason})
}
