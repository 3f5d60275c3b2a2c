package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A Problem says why a request failed, in the form of RFC 9457.
type Problem struct {
	Type   string `json:"type"`  // "urn:waterclock:invalid-body" and the like: for programs
	Title  string `json:"title"` // the status, in words
	Status int    `json:"status"`
	Detail string `json:"detail"` // for people: what is wrong

	// Errors say what is wrong with which part of a request, the first ones.
	Errors []FieldError `json:"errors,omitempty"`

	// Missing is what the token does not allow, if that is why.
	Missing *Missing `json:"missing,omitempty"`

	// Receipts are those of the jobs that were offered before the failure. Whether the others
	// have arrived is unknown; jobs with an ID can safely be offered again.
	Receipts []queue.Receipt `json:"receipts,omitempty"`
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// A FieldError says what is wrong with one part of a request.
type FieldError struct {
	// Pointer is the part of the body as a JSON pointer: "/3/cost" is the cost of the fourth job.
	// In NDJSON its first number is the number of the line, from 0. It is empty if the whole body
	// is meant.
	Pointer string `json:"pointer,omitempty"`

	Parameter string `json:"parameter,omitempty"` // of the query
	Line      int    `json:"line,omitempty"`      // of the body, from 1
	Column    int    `json:"column,omitempty"`    // in bytes, from 1
	Detail    string `json:"detail"`              // what is wrong
	Remedy    string `json:"remedy,omitempty"`    // what would be right
}

// mostErrors bounds how many errors are told at a time.
const mostErrors = 20

func problemf(status int, kind, format string, args ...any) *Problem {
	return &Problem{
		Type: "urn:waterclock:" + kind, Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...),
	}
}

// write answers with a problem.
func write(w http.ResponseWriter, p *Problem) {
	if p.Status == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", "5")
	}
	writeJSON(w, p.Status, "application/problem+json", p)
}

// problemOf returns the problem that an error is. What is Redis's own is not told: it is in
// the log.
func problemOf(err error) *Problem {
	var p *Problem
	var notDurable *store.NotDurableError
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, queue.ErrPoliciesChanged):
		return problemf(http.StatusConflict, "policies-changed", "other policies were put in force meanwhile; read them, and change those")
	case errors.Is(err, queue.ErrDivided):
		return problemf(http.StatusConflict, "divided", "%s; want the number that it has, or none", plain(err))
	case errors.Is(err, queue.ErrInvalidArgument), errors.Is(err, queue.ErrInvalidPolicies), errors.Is(err, queue.ErrInvalidJob):
		return problemf(http.StatusUnprocessableEntity, "invalid-value", "%s", plain(err))
	case errors.Is(err, queue.ErrSchema):
		return problemf(http.StatusInternalServerError, "schema", "%s", plain(err))
	case errors.As(err, &notDurable):
		return problemf(http.StatusServiceUnavailable, "not-durable", "%v", notDurable)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return problemf(http.StatusGatewayTimeout, "timeout", "Redis has not answered in time")
	case unreachable(err):
		return problemf(http.StatusServiceUnavailable, "redis-unreachable", "Redis cannot be reached")
	}
	return problemf(http.StatusInternalServerError, "internal", "something went wrong; the log of the server has it")
}

func unreachable(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrClosed) ||
		strings.Contains(err.Error(), "LOADING ") || strings.Contains(err.Error(), "EOF")
}

// plain is an error without the name of the package.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "queue: ") }
