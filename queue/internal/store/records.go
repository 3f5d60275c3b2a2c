package store

// Jobs that never run, or never again, leave a record in a stream: dropped ones in drops, those refused before
// they were offered in refused, and those without attempts left in dead. Commits write them, changes, and offers
// (offer.lua). [Store.Drops] and [Store.Dead] read them.

// The streams keep so many of the newest records, about.
const (
	dropsKept   = 100_000
	deadKept    = 100_000
	refusedKept = 10_000
)

// headLen is how much of a job that never runs is kept: all that says who it was.
const headLen = 2048

// droppedFor begins the names of the queue's counters of jobs that were dropped or refused for a reason;
// offer.lua knows it too.
const droppedFor = "dropped:"

// dropRecord returns the words of XADD that record a job which never runs.
func dropRecord(kept int, lane Lane, reason, rule, job string, now int64) []any {
	return []any{"MAXLEN", "~", kept, "*", "lane", lane.Name(), "reason", reason, "rule", rule, "at", now, "job", job[:min(len(job), headLen)]}
}

// deadRecord returns the words of XADD that keep a job which has no attempts left.
func deadRecord(lane Lane, why, job string, now int64) []any {
	return []any{"MAXLEN", "~", deadKept, "*", "lane", lane.Name(), "error", why, "at", now, "job", job}
}
