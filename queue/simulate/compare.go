package simulate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/queue"
)

// A Question is what [Compare] is asked: what changes for the tenants between two policies.
type Question struct {
	Before, After queue.Policies

	// Takes and Places are those of [Config], for both.
	Takes  time.Duration
	Places int
}

// An Answer is what would become of the offers.
type Answer struct {
	Tenants []Tenant // those with most jobs first
	runs    [2][]Result
}

// Compare computes what would become of offers under both policies. The error is that of [Run].
func Compare(q Question, offers []Offer) (a Answer, err error) {
	var outcomes [2]map[string]Fate
	for i, policies := range []queue.Policies{q.Before, q.After} {
		jobs, err := Run(Config{Policies: policies, Takes: q.Takes, Places: q.Places}, offers)
		if err != nil {
			return a, err
		}
		a.runs[i], outcomes[i] = jobs, fates(jobs)
	}
	a.Tenants = make([]Tenant, 0, len(outcomes[0]))
	for tenant := range outcomes[0] {
		a.Tenants = append(a.Tenants, Tenant{tenant, outcomes[0][tenant], outcomes[1][tenant]})
	}
	slices.SortFunc(a.Tenants, func(a, b Tenant) int {
		return cmp.Or(cmp.Compare(b.Before.Jobs, a.Before.Jobs), cmp.Compare(a.Tenant, b.Tenant))
	})
	return a, nil
}

// A Fate is what becomes of the jobs of a tenant. Its waits are those of the jobs that would start;
// they are 0, and Ends is the zero time, if none would.
type Fate struct {
	Jobs    int                  `json:"jobs"`              // offered
	P50     time.Duration        `json:"wait_p50_ns"`       // half of the jobs would wait for at most that
	P99     time.Duration        `json:"wait_p99_ns"`       // 99 of 100
	Max     time.Duration        `json:"wait_max_ns"`       // all
	Dropped map[queue.Reason]int `json:"dropped,omitempty"` // how many would be dropped, by reason
	Ends    time.Time            `json:"ends"`              // the last start
}

// A Tenant is a tenant under two policies.
type Tenant struct {
	Tenant string `json:"tenant"`
	Before Fate   `json:"before"`
	After  Fate   `json:"after"`
}

// fates sums up what becomes of the jobs of each tenant.
func fates(jobs []Result) map[string]Fate {
	waits, all := make(map[string][]time.Duration), make(map[string]Fate)
	for _, j := range jobs {
		f := all[j.Tenant]
		f.Jobs++
		if j.Reason != "" {
			if f.Dropped == nil {
				f.Dropped = make(map[queue.Reason]int)
			}
			f.Dropped[j.Reason]++
		} else {
			waits[j.Tenant] = append(waits[j.Tenant], j.Waited())
			if j.Slot.After(f.Ends) {
				f.Ends = j.Slot.UTC()
			}
		}
		all[j.Tenant] = f
	}
	for tenant, w := range waits {
		slices.Sort(w)
		f := all[tenant]
		quantile := func(q float64) time.Duration { return w[int(q*float64(len(w)-1))] }
		f.P50, f.P99, f.Max = quantile(.5), quantile(.99), quantile(1)
		all[tenant] = f
	}
	return all
}

// An offerLine is what plan reads of a line; the rest does not matter for limits.
type offerLine struct {
	Tenant   string    `json:"tenant"`
	User     string    `json:"user"`
	Type     string    `json:"type"`
	Cost     int       `json:"cost"`
	Priority string    `json:"priority"`
	Begin    time.Time `json:"not_before"`
	Deadline time.Time `json:"deadline"`
	Finish   time.Time `json:"finish_by"`

	Keys  map[string]string `json:"keys"`
	Costs map[string]int    `json:"costs"`

	DigestKey string `json:"digest_key"`
	Zone      string `json:"zone"`
	Quiet     string `json:"quiet"`
}

var priorities = map[string]queue.Priority{"": queue.Normal, "normal": queue.Normal, "high": queue.High, "low": queue.Low}

// ReadOffer reads a line of a log of offers: one that producer reads, with the instant of its
// offer in the field at, which may be a path such as payload.at. A line without it was offered
// at last, together with the one before.
func ReadOffer(line []byte, at string, last time.Time) (o Offer, err error) {
	var l offerLine
	if err := json.Unmarshal(line, &l); err != nil {
		return o, fmt.Errorf("not a line of producer: %w", err)
	}
	priority, known := priorities[l.Priority]
	if !known {
		return o, fmt.Errorf("priority %q; want high, normal or low", l.Priority)
	}
	o = Offer{At: last, Job: queue.Job{
		Tenant: l.Tenant, User: l.User, Type: cmp.Or(l.Type, "simulated"), Cost: l.Cost, Priority: priority, NotBefore: l.Begin, StartBy: l.Deadline, FinishBy: l.Finish,
		Keys: l.Keys, Costs: l.Costs, DigestKey: l.DigestKey, Zone: l.Zone, Quiet: l.Quiet,
	}}
	if o.At, err = instantIn(line, at, last); err != nil {
		return o, err
	}
	return o, o.Validate()
}

// instantIn returns the instant in a field of a line, by its path; last if there is none.
func instantIn(line []byte, path string, last time.Time) (time.Time, error) {
	value := json.RawMessage(line)
	for _, name := range strings.Split(path, ".") {
		var fields map[string]json.RawMessage
		if json.Unmarshal(value, &fields) != nil || fields[name] == nil {
			return last, nil
		}
		value = fields[name]
	}
	var seconds float64
	if json.Unmarshal(value, &seconds) == nil {
		return time.UnixMicro(int64(seconds * 1e6)).UTC(), nil
	}
	var at time.Time
	if err := json.Unmarshal(value, &at); err != nil {
		return at, fmt.Errorf("%s %s; want seconds since 1970, or an instant such as 2026-11-22T08:00:00Z", path, value)
	}
	return at, nil
}
