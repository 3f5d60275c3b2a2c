package notify

import "fmt"

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
