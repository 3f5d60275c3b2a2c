package worker

import "time"

// Metrics are told what happens, by any goroutine.
type Metrics interface {
	// While this worker leads, of all workers:

	Committed()                           // a commit was carried out
	Claimed(jobs int)                     // in one commit
	Counted(limit string)                 // a limit by name counts a job that was claimed
	Waited(cause string, d time.Duration) // what its jobs have waited for, all of them together
	InLine(lanes map[string]int)          // how many lanes wait for each limit by name
	Leads(leads bool)

	// Of this worker's jobs:

	First(tenant string, wait time.Duration) // from when a job was to start, until its first attempt
	Started(delay time.Duration)             // from its slot to its start
	Late(by time.Duration)                   // it was returned so long after its slot
	Ended(outcome string)                    // of an attempt; if another one follows, Waited is told of its backoff
}

// What jobs wait for, from when they were to start. Before another attempt that is its backoff.
const (
	WaitRules       = "rules"
	WaitPauses      = "pauses"
	WaitConcurrency = "concurrency"
	WaitPlaces      = "places"
	WaitBackoff     = "backoff"
)

// metricsOr returns the metrics, or some that are not kept.
func metricsOr(m Metrics) Metrics {
	if m == nil {
		return none{}
	}
	return m
}

type none struct{}

func (none) Claimed(int)                  {}
func (none) Started(time.Duration)        {}
func (none) First(string, time.Duration)  {}
func (none) Waited(string, time.Duration) {}
func (none) Ended(string)                 {}
func (none) Late(time.Duration)           {}
func (none) Counted(string)               {}
func (none) InLine(map[string]int)        {}
func (none) Committed()                   {}
func (none) Leads(bool)                   {}
