package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// A queue with partitions, at the console: a file divides it, and another number is refused. All commands show one queue.
func TestADividedQueue(t *testing.T) {
	t.Parallel()
	term := openTerminal(t)
	four, three, none := term.file("four.yaml", "partitions: 4\n"+someLimits), term.file("three.yaml", "partitions: 3\n"+someLimits), term.file("none.yaml", someLimits)
	term.prints([]string{"policies", "check", four}, "is right")
	term.prints([]string{"policies", "apply", four, "--yes"}, "+ partitions: 4", "The next start obeys")
	term.prints([]string{"policies", "get"}, "partitions: 4\n")
	term.prints([]string{"policies", "diff", none}, "Nothing changes.")
	term.prints([]string{"policies", "diff", three}, "- partitions: 4", "+ partitions: 3")
	term.fails(1, `it has 4 partitions, not 3: the number is fixed when a queue is used first; want the number that it has, or none`+"\n", "policies", "apply", three, "--yes")

	var jobs []queue.Job
	for k := range 40 {
		jobs = append(jobs, queue.Job{ID: fmt.Sprint("job-", k), Tenant: fmt.Sprint("school-", k%20), User: "u", Type: "push"})
	}
	term.offer(jobs...)
	term.prints([]string{"pause", "--for", "1h", "--yes"}, "The queue push is paused")
	if out := term.prints([]string{"pauses"}); strings.Count(out, "queue") != 1 {
		t.Errorf("one pause of the queue is shown as\n%s", out)
	}
	term.prints([]string{"cancel", "job-3", "job-23"}, "2 of 2 jobs are cancelled")
	term.prints([]string{"purge", "school-7", "--yes"}, "2 jobs were dropped")
	term.prints([]string{"drops"}, "purged", "job-7")
	term.prints([]string{"why", "school-5"}, "2 of the tenant", "paused")
	term.prints([]string{"why", "--job", "job-5"}, "Job job-5 of school-5 / u waits")
	if out := term.prints([]string{"tenants", "-n", "100"}); strings.Count(out, "school-") != 19 {
		t.Errorf("tenants:\n%s", out)
	}
	term.prints([]string{"resume"}, "not paused any more")

	stop := term.work(10, func(context.Context, *asynq.Task) error { return fmt.Errorf("%w: no", asynq.SkipRetry) })
	var entries []string
	redistest.Eventually(t, 20*time.Second, "all jobs are dead that were not ended before", func() bool {
		entries = regexp.MustCompile(`(?m)^[0-3]/\d+-\d+`).FindAllString(term.prints([]string{"dead", "-n", "100"}), -1)
		return len(entries) == 36
	})
	stop()
	term.prints([]string{"revive", entries[0], entries[20], "--yes"}, "2 of 2 jobs wait again.")
	term.prints([]string{"delete", entries[1], entries[0], "--yes"}, "1 of 2 jobs are deleted.")
	term.prints([]string{"revive", "--all", "--tenant", "school-5", "--yes"}, "jobs wait again.")
	term.fails(1, "want DeadJob.Entry, such as 3/1763707200000-0", "revive", "1763707200000-0", "--yes")
	if out, err := term.call("", "doctor"); err == nil || !strings.Contains(out, "are as they should be") { // there are no workers
		t.Errorf("%v:\n%s", err, out)
	}
	if found := errors.Is(term.again(), queue.ErrDivided); !found {
		t.Error("the queue has got another number of partitions")
	}
}

// again divides the queue another way.
func (t *terminal) again() error {
	inspector, err := queue.NewInspector(t.client, "push")
	if err != nil {
		return err
	}
	return inspector.SetPolicies(t.Context(), queue.Policies{Partitions: 5})
}
