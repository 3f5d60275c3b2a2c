package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"
)

// An asynq task carries a job. ID, type, payload, retries and schedule are those of the task; the
// other fields of the job are headers.
const (
	headerPrefix      = "waterclock-" // ours: others are passed on to the handler
	headerTenant      = headerPrefix + "tenant"
	headerUser        = headerPrefix + "user"
	headerCost        = headerPrefix + "cost"
	headerNotBefore   = headerPrefix + "not-before"
	headerDeadline    = headerPrefix + "deadline"
	headerPriority    = headerPrefix + "priority"
	headerCollapseKey = headerPrefix + "collapse-key"
	headerDigestKey   = headerPrefix + "digest-key"
	headerTimeout     = headerPrefix + "timeout"
	headerFinishBy    = headerPrefix + "finish-by"
	headerZone        = headerPrefix + "zone"
	headerQuiet       = headerPrefix + "quiet"
	headerCallback    = headerPrefix + "callback" // its URL, and behind a space the secret
	headerKey         = headerPrefix + "key-"     // and the name of a key
	headerUnit        = headerPrefix + "cost-"    // and the name of a unit
)

// Headers returns the headers that turn an asynq task into a job of a user of a tenant, for
// [asynq.NewTaskWithHeaders]. Enqueue the task to the asynq queue of the same name as the
// waterclock queue, at once or by a schedule; a worker with an inbox puts it into its lane.
//
// Of the task's options, TaskID is the job's ID, MaxRetry its attempts less one, Timeout its
// Timeout and Deadline its FinishBy. While the job waits or runs, another task with its ID is
// refused, logged and listed by [Inspector.Drops]. A lock of asynq.Unique holds until the job is
// done; it is for a type and a payload, so the payload has to contain the user. A task's
// ResultWriter is nil, see [WriteResult]. docs/migrate-from-asynq.md goes through all options.
//
// The other fields of a [Job] have headers too, such as "waterclock-priority"; docs/jobs.md lists
// them. [NewTask] sets them all.
func Headers(tenant, user string) map[string]string {
	return map[string]string{headerTenant: tenant, headerUser: user}
}

// NewTask returns a job as an asynq task. Enqueue the task to the asynq queue of the same name as
// the waterclock queue; a worker with an inbox puts the job into its lane with all its fields.
// The error wraps [ErrInvalidJob]. Beside invalid jobs, it refuses jobs that an asynq task cannot
// carry: with names that are not UTF-8, or with a type or an ID that is only white space.
func NewTask(j Job) (*asynq.Task, error) {
	if err := j.Validate(); err != nil {
		return nil, err
	}
	if err := fitsTask(j); err != nil {
		return nil, err
	}
	headers := Headers(j.Tenant, j.User)
	if j.Cost > 0 {
		headers[headerCost] = strconv.Itoa(j.Cost)
	}
	if !j.NotBefore.IsZero() {
		headers[headerNotBefore] = j.NotBefore.Format(time.RFC3339Nano)
	}
	if !j.StartBy.IsZero() {
		headers[headerDeadline] = j.StartBy.Format(time.RFC3339Nano)
	}
	if !j.FinishBy.IsZero() {
		headers[headerFinishBy] = j.FinishBy.Format(time.RFC3339Nano)
	}
	if j.Priority != Normal {
		headers[headerPriority] = j.Priority.String()
	}
	if j.CollapseKey != "" {
		headers[headerCollapseKey] = j.CollapseKey
	}
	if j.DigestKey != "" {
		headers[headerDigestKey] = j.DigestKey
	}
	if j.Timeout > 0 {
		headers[headerTimeout] = j.Timeout.String()
	}
	if j.Zone != "" {
		headers[headerZone] = j.Zone
	}
	if j.Quiet != "" {
		headers[headerQuiet] = j.Quiet
	}
	if j.Callback != (Callback{}) {
		headers[headerCallback] = j.Callback.text()
	}
	for name, value := range j.Keys {
		headers[headerKey+name] = value
	}
	for unit, n := range j.Costs {
		headers[headerUnit+unit] = strconv.Itoa(n)
	}
	maps.Copy(headers, j.Headers)
	return asynq.NewTaskWithHeaders(j.Type, j.Payload, headers, taskOptions(j)...), nil
}

// fitsTask refuses jobs that asynq would refuse, or that a task cannot carry unchanged.
func fitsTask(j Job) error {
	texts := map[string]string{
		"tenant": j.Tenant, "user": j.User, "type": j.Type, "id": j.ID, "collapse_key": j.CollapseKey, "digest_key": j.DigestKey,
	}
	for name, value := range j.Keys {
		texts["key "+strconv.Quote(name)] = value
	}
	for name, value := range j.Headers {
		if strings.HasPrefix(name, headerPrefix) {
			return fmt.Errorf("%w: header %q; names that begin with %q have a meaning of their own", ErrInvalidJob, name, headerPrefix)
		}
		texts["header "+strconv.Quote(name)] = name + value
	}
	for field, text := range texts {
		if !utf8.ValidString(text) {
			return fmt.Errorf("%w: %s is not UTF-8; an asynq task carries nothing else", ErrInvalidJob, field)
		}
	}
	for field, text := range map[string]string{"type": j.Type, "id": j.ID} {
		if text != "" && strings.TrimSpace(text) == "" {
			return fmt.Errorf("%w: %s is only white space; an asynq task needs more", ErrInvalidJob, field)
		}
	}
	return nil
}

// taskOptions are what asynq itself keeps for a job, and a timeout that stands for none. It schedules by whole seconds and
// comes up to one early: the header holds the job back for the rest.
func taskOptions(j Job) (options []asynq.Option) {
	if j.ID != "" {
		options = append(options, asynq.TaskID(j.ID))
	}
	if j.MaxAttempts != 0 {
		options = append(options, asynq.MaxRetry(j.MaxAttempts-1))
	}
	if !j.NotBefore.IsZero() {
		options = append(options, asynq.ProcessAt(j.NotBefore))
	}
	if j.Timeout == 0 {
		options = append(options, asynq.Timeout(maxTimeout)) // asynq's default is half an hour
	}
	return options
}

// jobOf returns the job that a task carries. The error, wrapping ErrInvalidJob, becomes the
// task's last error in asynq's archive.
func jobOf(ctx context.Context, t *asynq.Task, of func(*asynq.Task) (Job, error)) (job Job, err error) {
	headers := t.Headers()
	if of != nil && headers[headerTenant] == "" && headers[headerUser] == "" {
		job, err = read(t, of)
	}
	job.ID, _ = asynq.GetTaskID(ctx)
	job.Type, job.Payload, job.Headers, job.MaxAttempts = t.Type(), t.Payload(), make(map[string]string), 0
	if retries, ok := asynq.GetMaxRetry(ctx); ok {
		used, _ := asynq.GetRetryCount(ctx) // at servers that had the queue before
		job.MaxAttempts = min(max(0, retries-used), maxAttempts-1) + 1
	}
	if err != nil {
		return job, fmt.Errorf("%w: WorkerConfig.InboxJob: %w", ErrInvalidJob, err)
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if err := readHeader(&job, name, headers[name]); err != nil {
			return job, fmt.Errorf("%w: header %q is %q; %w", ErrInvalidJob, name, headers[name], err)
		}
	}
	for _, required := range [][2]string{{headerTenant, job.Tenant}, {headerUser, job.User}} {
		if header, value := required[0], required[1]; value == "" {
			return job, fmt.Errorf("%w: the task has no header %q; make it with queue.NewTask, or with asynq.NewTaskWithHeaders and queue.Headers, or set WorkerConfig.InboxJob",
				ErrInvalidJob, header)
		}
	}
	return job, job.Validate()
}

// read calls the user's InboxJob for a task. A panic is returned as an error; otherwise asynq
// would repeat the task for ever.
func read(t *asynq.Task, of func(*asynq.Task) (Job, error)) (job Job, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	job, err = of(t)
	if err == nil && (job.Tenant == "" || job.User == "") {
		err = fmt.Errorf("tenant %q, user %q; both are needed", job.Tenant, job.User)
	}
	job.Keys, job.Costs = maps.Clone(job.Keys), maps.Clone(job.Costs) // headers may add to them
	return job, err
}

// readHeader reads one header into the job. An unknown header with our prefix is an error:
// ignored, it could be a latest start that silently does not hold.
func readHeader(job *Job, name, value string) (err error) {
	switch name {
	case headerTenant:
		job.Tenant = value
	case headerUser:
		job.User = value
	case headerCollapseKey:
		job.CollapseKey = value
	case headerZone:
		job.Zone = value
	case headerQuiet:
		job.Quiet = value
	case headerDigestKey:
		job.DigestKey = value
	case headerCallback:
		job.Callback = readCallback(value)
	case headerCost:
		if job.Cost, err = strconv.Atoi(value); err != nil || job.Cost < 1 {
			return fmt.Errorf("a whole number from 1 to %d", maxCost)
		}
	case headerNotBefore:
		job.NotBefore, err = readTime(value)
	case headerDeadline:
		job.StartBy, err = readTime(value)
	case headerFinishBy:
		job.FinishBy, err = readTime(value)
	case headerPriority:
		job.Priority, err = readPriority(value)
	case headerTimeout:
		if job.Timeout, err = time.ParseDuration(value); err != nil || job.Timeout <= 0 {
			return errors.New("a time such as 30s")
		}
	default:
		if key, is := strings.CutPrefix(name, headerKey); is {
			if job.Keys == nil {
				job.Keys = make(map[string]string)
			}
			job.Keys[key] = value
			return nil
		}
		if unit, is := strings.CutPrefix(name, headerUnit); is {
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 || n > maxUnits {
				return fmt.Errorf("a whole number from 0 to %d", maxUnits)
			}
			if job.Costs == nil {
				job.Costs = make(map[string]int)
			}
			job.Costs[unit] = n
			return nil
		}
		if strings.HasPrefix(name, headerPrefix) {
			return errors.New("there is no such header, docs/jobs.md lists them")
		}
		job.Headers[name] = value
	}
	return err
}

func readPriority(value string) (Priority, error) {
	for _, p := range []Priority{High, Normal, Low} {
		if p.String() == value {
			return p, nil
		}
	}
	return Normal, errors.New("high, normal or low")
}

func readTime(value string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return t, errors.New("a time such as 2026-11-21T08:00:00Z")
	}
	return t, nil
}
