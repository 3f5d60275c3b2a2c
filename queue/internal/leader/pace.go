package leader

import (
	"time"

	"github.com/waterclock/waterclock/queue/internal/elect"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A leader renews its lease with its commits: with each of them, and with empty ones while there is nothing to do. How long the lease is,
// is how long the queue waits if the leader dies. While there is something to do, that is half a second. Where nothing has happened for a
// while the lease is longer, so that the many partitions of a queue, and many queues, cost Redis little: the first job that comes then
// may wait for three seconds, if the leader is dead. The commit that starts the first job shortens the lease again. A worker that is alone
// has a lease of one second in any case: who takes its place has to wait for the end of that.

// calmAfter is how long after the last job that has started, ended or come back a leader is calm.
const calmAfter = 10 * time.Second

// calm reports whether nothing runs, and there has been nothing to do for a while.
func (t *term) calm() bool { return time.Since(t.worked) > calmAfter && !t.sched.Runs() }

// lease returns how long the lease is from a commit on.
func (t *term) lease(c *store.Commit) time.Duration {
	if t.calm() && !t.alone() && c.Empty() {
		return elect.LeaseCalm(t.w.Clock)
	}
	return t.patience()
}

// patience returns for how long a reply to a commit is waited for: as long as the lease is while there is something to do.
func (t *term) patience() time.Duration {
	if t.alone() {
		return elect.LeaseAlone(t.w.Clock)
	}
	return elect.Lease(t.w.Clock)
}

// renewEvery returns after what time without a commit the term sends an empty one: three times within the lease that it has.
func (t *term) renewEvery() time.Duration { return t.fence.Lease * 3 / 10 }
