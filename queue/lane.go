package queue

import (
	"context"
	"slices"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A WaitingJob is a job in its lane.
type WaitingJob struct {
	Job
	Place   int // in line among the user's jobs of its priority; 1 is next
	Offered time.Time
	Begin   time.Time // from when on it was to start: its offer, or its NotBefore, or when it was revived
	Attempt int       // what its next execution will be
	Error   string    // of its last attempt, if that failed: the first 300 bytes
}

// Lane returns the waiting jobs of a user in their order, from the given place on (0 is
// the first), at most n of each priority.
func (i *Inspector) Lane(ctx context.Context, tenant, user string, from, n int) ([]WaitingJob, error) {
	if from < 0 || n < 1 {
		return nil, nil
	}
	i, err := i.of(ctx, tenant)
	if err != nil {
		return nil, err
	}
	lanes, err := i.forecasts.Lanes(ctx, tenant, user)
	if err != nil {
		return nil, i.failed("inspecting", err)
	}
	var pages []store.Page
	for _, lane := range lanes {
		pages = append(pages, store.Page{Lane: lane, From: from, N: n})
	}
	entries, err := i.store.Entries(ctx, pages)
	if err != nil {
		return nil, i.failed("inspecting", err)
	}
	var jobs []WaitingJob
	var spilled []string
	var missing []int // the jobs whose payloads these are
	for _, entry := range entries {
		e, _ := envelope.Open(entry.Job)
		if e == nil {
			continue // it left the lane in the meantime, or is unreadable
		}
		if e.Spilled != "" {
			spilled, missing = append(spilled, e.Spilled), append(missing, len(jobs))
		}
		jobs = append(jobs, WaitingJob{open(entry.Lane, e), entry.Place, envelope.Instant(e.Offered()), envelope.Instant(e.Begin()), e.Failures + 1, e.Error})
	}
	payloads, err := i.store.Payloads(ctx, spilled)
	if err != nil {
		return nil, i.failed("inspecting", err)
	}
	for k, payload := range payloads {
		jobs[missing[k]].Payload = []byte(payload)
	}
	return jobs, nil
}

// A position is where a job stands in its lane.
type position struct {
	place  int // from 1; 0 if it was not found
	before int // jobs of its user that come first
	job    *envelope.Envelope
}

// find looks for a job with the caller's own ID in its lane, through a bounded part of
// that.
func (i *Inspector) find(ctx context.Context, lane store.Lane, id string) (position, error) {
	const step, most = 1000, 10_000
	lanes, err := i.forecasts.Lanes(ctx, lane.Tenant, lane.User)
	if err != nil {
		return position{}, err
	}
	lengths, err := i.store.Lengths(ctx, lanes)
	if err != nil {
		return position{}, err
	}
	before := 0
	for k, other := range lanes {
		if other.Priority < lane.Priority && other.Label == lane.Label {
			before += int(lengths[k])
		}
	}
	for from := 0; from < most; from += step {
		entries, err := i.store.Entries(ctx, []store.Page{{Lane: lane, From: from, N: step}})
		if err != nil || len(entries) == 0 {
			return position{}, err
		}
		for _, entry := range entries {
			head, ok := envelope.Head(entry.Job)
			if ok && slices.ContainsFunc(head.Parts(), func(part *envelope.Envelope) bool { return part.ID == id }) {
				return position{entry.Place, before + entry.Place - 1, head}, nil
			}
		}
	}
	return position{}, nil
}
