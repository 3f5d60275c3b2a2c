package throttlehttp

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/throttle"
	"github.com/waterclock/waterclock/throttle/limits"
)

// SetFields sets the fields RateLimit-Policy and RateLimit of an answer for a decision, and the limits that it was made under: for
// handlers that decide themselves.
func SetFields(header http.Header, all []limits.Limit, d limits.Decision) {
	setFields(header, policyField(all), d)
}

// setFields returns the name of the rule that binds.
func setFields(header http.Header, policy string, d limits.Decision) (name string) {
	if policy != "" {
		header.Set("RateLimit-Policy", policy)
	}
	name = nameOfRule(d.Limit, d.Rule)
	if d.Rule != "" {
		header.Set("RateLimit", stateField(name, d.Decision))
	}
	return name
}

// policyField returns RateLimit-Policy: each rule with its quota and, if it is a whole number of
// seconds, its window.
func policyField(all []limits.Limit) string {
	var items []string
	for _, l := range all {
		for _, rule := range l.Rules {
			if rule.Shadows() || rule.Kind() == throttle.KindHours || rule.Kind() == throttle.KindWarmup { // they have no quota that stays
				continue
			}
			quota, window := quotaOf(rule)
			item := fmt.Sprintf("%q;q=%d", nameOfRule(l.Name, rule.String()), quota)
			if window >= time.Second && window%time.Second == 0 {
				item += fmt.Sprintf(";w=%d", window/time.Second)
			}
			items = append(items, item)
		}
	}
	return strings.Join(items, ", ")
}

// quotaOf returns how much a rule admits in a window: a token bucket as much as it holds in the
// time that it takes to fill. The division comes last: its remainder is part of that time.
func quotaOf(rule throttle.Rule) (quota int, window time.Duration) {
	switch rule.Kind() {
	case throttle.KindTokenBucket:
		period, limit, burst := rule.Period(), time.Duration(rule.Limit()), time.Duration(rule.Burst())
		return rule.Burst(), period/limit*burst + period%limit*burst/limit
	case throttle.KindSpacing:
		return 1, rule.Period()
	}
	return rule.Limit(), rule.Period()
}

// nameOfRule is the identifier of a rule in the fields.
func nameOfRule(limit, rule string) string { return limit + " " + rule }

// setXRateLimit sets the fields that came before those of the draft.
func setXRateLimit(header http.Header, d throttle.Decision) {
	header.Set("X-RateLimit-Limit", strconv.Itoa(d.Limit))
	header.Set("X-RateLimit-Remaining", strconv.Itoa(max(0, d.Remaining)))
	header.Set("X-RateLimit-Reset", strconv.FormatInt(seconds(more(d)), 10))
}

// stateField returns RateLimit: what is left of the rule that binds, and when there is more of it
// again. After a refusal that is the time of Retry-After.
func stateField(name string, d throttle.Decision) string {
	return fmt.Sprintf("%q;r=%d;t=%d", name, max(0, d.Remaining), seconds(more(d)))
}

// more returns how long it takes until there is more of the rule that binds: after a refusal, until it is worth to ask again.
func more(d throttle.Decision) time.Duration {
	switch d.Outcome {
	case throttle.Admitted:
		return d.NextAfter
	case throttle.Dropped: // its slot is where a rule has refused it, and not when that rule would not
		return max(d.RetryAfter, d.NextAfter)
	}
	return d.RetryAfter
}

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64(math.Ceil(max(0, d.Seconds()))) }

// The types of problems that the draft registers.
const (
	quotaExceeded            = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	temporaryReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// problem is a body as in RFC 9457.
type problem struct {
	Type     string   `json:"type,omitempty"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"`
}

func refuse(w http.ResponseWriter, name string, d throttle.Decision) {
	after := max(1, seconds(more(d)))
	w.Header().Set("Retry-After", strconv.FormatInt(after, 10))
	writeProblem(w, problem{
		Type: quotaExceeded, Title: "Too Many Requests", Status: http.StatusTooManyRequests,
		Detail: fmt.Sprintf("%s admits the next request in %d s.", name, after), Violated: []string{name},
	})
}

func writeProblem(w http.ResponseWriter, p problem) {
	body, err := json.Marshal(p)
	if err != nil {
		http.Error(w, p.Title, p.Status)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // who has gone away does not read it
}
