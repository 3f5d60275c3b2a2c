package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/waterclock/waterclock/internal/jobline"
	"github.com/waterclock/waterclock/internal/strictjson"
	"github.com/waterclock/waterclock/queue"
)

// maxJobs is how many jobs one request can offer.
const maxJobs = 10_000

// A jobsBody is the jobs of a request: one object, a list of them, or one on each line.
type jobsBody struct{ jobs []queue.Job }

// A JobLine is a job in a request. It describes the API; package jobline reads the requests.
type JobLine struct {
	Tenant      string          `json:"tenant"`
	User        string          `json:"user"`
	Type        string          `json:"type"`
	Payload     json.RawMessage `json:"payload,omitempty"`
	ID          string          `json:"id,omitempty"`
	Cost        int             `json:"cost,omitempty"`
	NotBefore   time.Time       `json:"not_before,omitzero"`
	Deadline    time.Time       `json:"deadline,omitzero"`
	FinishBy    time.Time       `json:"finish_by,omitzero"`
	Priority    string          `json:"priority,omitempty"`
	CollapseKey string          `json:"collapse_key,omitempty"`
	DigestKey   string          `json:"digest_key,omitempty"`
	MaxRetry    int             `json:"max_retry,omitempty"`
	Timeout     span            `json:"timeout,omitempty"`

	Headers map[string]string `json:"headers,omitempty"`
	Keys    map[string]string `json:"keys,omitempty"`
	Costs   map[string]int    `json:"costs,omitempty"`

	Zone  string `json:"zone,omitempty"`
	Quiet string `json:"quiet,omitempty"`

	Callback *Callback `json:"callback,omitempty"`
}

// A Callback is an endpoint that is told how a job has ended. It describes the API, as [JobLine] does.
type Callback struct {
	URL    string `json:"url"`
	Secret string `json:"secret,omitempty"`
}

// Receipts say what became of the jobs of a request, in their order.
type Receipts struct {
	Receipts []queue.Receipt `json:"receipts"`
}

// offer takes the jobs of a request into the queue.
func offer(c *call, in jobsBody) (Receipts, error) {
	client, err := c.h.clients.of(c.queue)
	if err != nil {
		return Receipts{}, err
	}
	receipts, err := client.Enqueue(c.ctx, in.jobs...)
	if err != nil {
		p := *problemOf(err)
		p.Receipts = receipts
		p.Detail += fmt.Sprintf("; %d of %d jobs are known to have arrived; those with an ID can safely be offered again", len(receipts), len(in.jobs))
		c.h.cfg.Logger.Error("offering over HTTP", "queue", c.queue, "err", err)
		return Receipts{}, &p
	}
	return Receipts{receipts}, nil
}

// A piece is a part of the body that is to be a job.
type piece struct {
	text    []byte
	offset  int // where it begins
	pointer string
}

// readJobs reads the jobs. If one is invalid, none is taken, and the problem says what is wrong
// with which.
func (c *call) readJobs(into *jobsBody) error {
	kind, err := c.kind(kindJSON, kindLines)
	if err != nil {
		return err
	}
	var pieces []piece
	switch {
	case kind == kindLines:
		pieces = lines(c.body)
	case strictjson.Kind(c.body) == "a list":
		if pieces, err = items(c.body); err != nil {
			return invalidBody(c.body, err)
		}
	default:
		pieces = []piece{{text: c.body}}
	}
	if len(pieces) > maxJobs {
		return problemf(http.StatusRequestEntityTooLarge, "too-long", "%d jobs; want at most %d in a request", len(pieces), maxJobs)
	}
	var wrong []FieldError
	for _, piece := range pieces {
		job, err := jobline.Parse(piece.text)
		if err != nil && len(wrong) < mostErrors {
			wrong = append(wrong, jobError(c.body, piece, err))
		}
		into.jobs = append(into.jobs, job)
	}
	if len(wrong) > 0 {
		p := problemf(http.StatusBadRequest, "invalid-job", "%s is wrong: %s; nothing was offered", name(wrong[0]), wrong[0].Detail)
		p.Errors = wrong
		return p
	}
	return nil
}

// name is what an error is about, for people.
func name(e FieldError) string {
	if e.Pointer == "" {
		return fmt.Sprintf("line %d", e.Line)
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Pointer)
}

func jobError(body []byte, p piece, err error) FieldError {
	e := fieldError(body, p.pointer, p.offset, err)
	var known *strictjson.Error
	if field := jobline.Field(err); field != "" && !errors.As(err, &known) {
		e.Pointer = p.pointer + "/" + field
	}
	return e
}

// items returns the items of a list.
func items(body []byte) (all []piece, err error) {
	if err := strictjson.Valid(body); err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	if _, err = decoder.Token(); err != nil {
		return nil, err
	}
	for i := 0; decoder.More(); i++ {
		var item json.RawMessage
		if err = decoder.Decode(&item); err != nil {
			return nil, err
		}
		all = append(all, piece{item, int(decoder.InputOffset()) - len(item), fmt.Sprintf("/%d", i)})
	}
	return all, nil
}

// lines returns the lines that are not empty.
func lines(body []byte) (all []piece) {
	at := 0
	for i, line := range bytes.Split(body, []byte("\n")) {
		if len(bytes.TrimSpace(line)) > 0 {
			all = append(all, piece{line, at, fmt.Sprintf("/%d", i)})
		}
		at += len(line) + 1
	}
	return all
}
