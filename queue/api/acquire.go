package api

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/waterclock/waterclock/throttle/limits"
)

// An Acquisition asks for the next slot of one limit, for which the caller waits so long at most.
type Acquisition struct {
	Fields
	WithinMS int `json:"within_ms,omitempty"`
}

// mostWithin bounds how long a caller may wait, in milliseconds: it has an answer before its client, or a proxy, gives up.
const mostWithin = 15_000

// acquire answers when the limit lets the action happen, or at once if that is not within the time.
func acquire(c *call, in Acquisition) (Decision, error) {
	set, err := c.limits()
	if err != nil {
		return Decision{}, err
	}
	if in.WithinMS > mostWithin {
		return Decision{}, wrongField("/within_ms", fmt.Sprintf("is %d", in.WithinMS), fmt.Sprintf("want at most %d", mostWithin))
	}
	limit := c.r.PathValue("limit")
	d, err := set.Acquire(c.ctx, limit, in.fields(), time.Duration(in.WithinMS)*time.Millisecond)
	switch {
	case errors.Is(err, limits.ErrUnknownLimit):
		return Decision{}, problemf(http.StatusNotFound, "no-such-limit", "the file of limits has no limit %q", limit)
	case err != nil:
		return Decision{}, actionProblem(err, 1)
	}
	return decisionOf(ModeAllow, d), nil
}
