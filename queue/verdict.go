package queue

import (
	"errors"
	"time"

	"github.com/hibiken/asynq"
)

// RetryAfter returns an error with which a handler says: this attempt failed, and the
// next is not to come sooner than that, whatever [WorkerConfig.RetryDelay] says.
func RetryAfter(d time.Duration, cause error) error {
	return &retryError{d, cause}
}

type retryError struct {
	after time.Duration
	cause error
}

func (e *retryError) Error() string { return textOf(e.cause, "queue: to be attempted again") }
func (e *retryError) Unwrap() error { return e.cause }

// retryFloor returns what [RetryAfter] asks for.
func retryFloor(err error) time.Duration {
	var retry *retryError
	if errors.As(err, &retry) {
		return retry.after
	}
	return 0
}

// RefundUser returns an error with which a handler says, beside what err says: the user
// has seen nothing of this attempt. The user's windows and spacings get its slot back,
// as if it had never been; those of the tenant and the queue do not, since the attempt
// did take place. Err is what the handler would have returned: a failure, a pause, or,
// where the job has come to its end all the same, [asynq.RevokeTask].
func RefundUser(err error) error {
	return &refundError{err}
}

type refundError struct{ err error }

func (e *refundError) Error() string { return textOf(e.err, "queue: the user has seen nothing") }
func (e *refundError) Unwrap() error { return e.err }

func asRefund(err error) bool {
	var refund *refundError
	return errors.As(err, &refund)
}

// refund gives the user's rules the slot back if the handler asked for it.
func (p *puller) refund(job claim, err error) {
	if !asRefund(err) {
		return
	}
	ends := 0
	if errors.Is(err, asynq.RevokeTask) || errors.Is(err, asynq.SkipRetry) {
		ends = 1
	}
	p.report(job, "refunded", p.scripts.refund, job.token, ends)
}

func textOf(cause error, otherwise string) string {
	if cause == nil {
		return otherwise
	}
	return cause.Error()
}
