package notify

import (
	"fmt"

	"github.com/waterclock/waterclock/queue"
)

// DeadLedgerKey is where the ledger keeps what a dead job has delivered.
func DeadLedgerKey(job queue.Info) string { return deadLedgerKey(job) }

// A Row is one of the matrix's answers, for the tests that look from outside.
type Row struct {
	Provider, Body, RetryAfter string
	Status                     int
	Meaning                    string // rows of a provider with one meaning are handled alike
}

// Rows returns the answers that are no success.
func Rows() (rows []Row) {
	for _, r := range matrix {
		if r.want != Done {
			meaning := fmt.Sprint(r.want, r.after, r.doubtful)
			rows = append(rows, Row{r.provider, r.body, r.retryAfter, r.status, meaning})
		}
	}
	return rows
}
