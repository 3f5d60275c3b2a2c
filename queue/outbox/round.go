package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/internal/jobline"
	"github.com/waterclock/waterclock/queue"
)

// The bounds of a round, in bytes.
const (
	maxRound = 2 << 20                              // of all its rows, or one row
	maxRow   = jobline.MaxLine + jobline.MaxPayload // a row that is longer is no job, and not read
)

// doubt is how long after its first offer a row may be offered again: an hour less than the queue knows an ID. The hour is for
// clocks that differ, and for the offer's own time.
const doubt = 23 * time.Hour

// round offers the first waiting rows, if this relay has or gets the lease. It reports whether there are likely more.
func (f *feed) round(ctx context.Context) (more bool, err error) {
	found, err := f.find(ctx)
	if err != nil || len(found) == 0 {
		return false, err
	}
	numbers, ends := f.choose(found)
	rows, held, err := f.claim(ctx, numbers)
	if err != nil || !held {
		return false, err
	}
	offered, refused := decode(rows)
	ends = append(ends, refused...)
	answered, failure := f.offer(ctx, offered)
	ends = append(ends, answered...)
	err = errors.Join(failure, f.end(ctx, ends))
	return len(ends) > 0 && (len(found) == f.config.BatchSize || len(numbers) < len(found)), err
}

// choose returns the numbers of the rows that are offered in this round, in their order, and how those end that cannot be.
func (f *feed) choose(found []waitingRow) (numbers []int64, ends []ending) {
	size := 0
	for _, r := range found {
		switch {
		case r.size > maxRow:
			ends = append(ends, ending{seq: r.seq, id: r.id, state: Invalid, reason: fmt.Sprintf("id, job and payload have %d bytes; at most %d", r.size, maxRow)})
		case r.since > doubt:
			ends = append(ends, ending{seq: r.seq, id: r.id, state: Unknown, reason: fmt.Sprintf(
				"first offered %v ago, and the answer was lost; the queue knew its ID for a day, so that it might run twice if it was offered again", r.since.Round(time.Minute))})
		case size > 0 && size+r.size > maxRound:
			return numbers, ends
		default:
			size += r.size
			numbers = append(numbers, r.seq)
		}
	}
	return numbers, ends
}

// An ending is how a row ends.
type ending struct {
	seq     int64
	id      string
	state   State
	reason  string
	outcome string // for the counter; empty for the state
	job     queue.Job
}

// offer offers rows in their order and returns how those end that were answered. If the queue calls one of them invalid, as its
// policies may, halves are offered, until that one is alone.
func (f *feed) offer(ctx context.Context, rows []claimedRow) (ends []ending, err error) {
	if len(rows) == 0 {
		return nil, nil
	}
	jobs := make([]queue.Job, len(rows))
	for i, r := range rows {
		jobs[i] = r.job
	}
	within, cancel := context.WithTimeout(ctx, f.config.Lease*4/5)
	receipts, err := f.client.Enqueue(within, jobs...)
	cancel()
	for i, receipt := range receipts {
		ends = append(ends, rows[i].answered(receipt))
	}
	rest := rows[len(receipts):]
	switch {
	case !errors.Is(err, queue.ErrInvalidJob):
		return ends, err
	case len(rest) == 1:
		return append(ends, rest[0].refused(Invalid, jobline.Complaint(err).Error())), nil
	}
	for _, half := range [][]claimedRow{rest[:len(rest)/2], rest[len(rest)/2:]} {
		answered, err := f.offer(ctx, half)
		ends = append(ends, answered...)
		if err != nil {
			return ends, err
		}
	}
	return ends, nil
}

// answered is how a row ends after a receipt. A duplicate has been accepted before: this row, or another one with its ID.
func (r claimedRow) answered(receipt queue.Receipt) ending {
	if receipt.Status != queue.Dropped {
		return ending{seq: r.seq, id: r.job.ID, state: Accepted, outcome: string(receipt.Status)}
	}
	reason := string(receipt.Reason)
	if receipt.Rule != "" {
		reason += ": " + receipt.Rule
	}
	return r.refused(Dropped, reason)
}

func (r claimedRow) refused(state State, reason string) ending {
	return ending{seq: r.seq, id: r.job.ID, state: state, reason: reason, job: r.job}
}
