package queue

import (
	"context"
	"time"

	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/queue/internal/ctxkey"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// Info tells a handler about the job that it runs. All times are on Redis's clock.
type Info struct {
	ID, Queue, Tenant, User, Type string // of the job, as it was offered

	Slot    time.Time // when the job was allowed to start
	Started time.Time // when it did: never before its slot
	Offered time.Time // when it was accepted

	// Attempt is 1 for the first execution. Being deferred is not an attempt.
	Attempt     int
	MaxAttempts int // of the job, at least 1

	Timeout  time.Duration // of one attempt; 0 means none
	FinishBy time.Time     // when the handler's context ends at the latest; zero means never

	// Cost is how much of each of its rules the job spends; 1 by default.
	Cost int

	// Keys and Costs are what limits by name count of the job, see [Job]. They must not be changed.
	Keys  map[string]string
	Costs map[string]int

	// SentOn says that the worker before could not run the job, see [SendOn].
	SentOn bool

	// Digest are the members of a digest, in the order of their offers: the job is the newest of them. nil for any other job,
	// see Job.DigestKey. They must not be changed.
	Digest []Member

	// Waited is the time from the offer to the start.
	Waited time.Duration

	limits func() []schedule.Use // nil outside of a worker
	store  *store.Store          // for results; nil outside of a worker
}

// A Member is a job that starts together with others, see Job.DigestKey.
type Member struct {
	ID, Type string
	Payload  []byte
	Headers  map[string]string
	Offered  time.Time
	Cost     int
}

// Limits returns the limits by name that count the job, in the order of their names, as far as the worker knows the
// policies: a change of them is known after some seconds.
func (i Info) Limits() []JobLimit {
	if i.limits == nil {
		return nil
	}
	return jobLimits(i.limits())
}

// A JobLimit is a limit by name that counts a job. A handler pauses it for others, too, with
// Pause{Scope: ScopeLimit, Limit: l.Limit, Key: l.Key}.
type JobLimit struct {
	Limit  string   // its name
	Fields []string // of its key, such as "keys.domain"; none for one counter for all. They must not be changed.
	Key    string   // the values of these fields for the job, as in [Pause]
}

func jobLimits(uses []schedule.Use) []JobLimit {
	if len(uses) == 0 {
		return nil
	}
	all := make([]JobLimit, len(uses))
	for i, use := range uses {
		all[i] = JobLimit{use.Name, use.Fields, keyOf(use)}
	}
	return all
}

// keyOf returns the values of the fields of a limit's key, for one of its counters.
func keyOf(use schedule.Use) string {
	_, values, _ := envelope.ParseLimitScope(use.Scope)
	return limits.JoinKey(values)
}

// FromContext returns what is known of the job in whose handler ctx was received, and
// false outside of one. asynq.GetTaskID, GetRetryCount, GetMaxRetry and GetQueueName know
// only contexts that asynq itself has made, and a task's ResultWriter is nil here, see [WriteResult]. For
// tests of a handler alone, queuetest.NewContext makes such a context.
func FromContext(ctx context.Context) (Info, bool) {
	info, ok := ctx.Value(ctxkey.Info{}).(*Info)
	if !ok {
		return Info{}, false
	}
	return *info, true
}
