package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/policydiff"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/simulate"
)

// PoliciesInForce are the policies of a queue. Version 0 means that none were ever set.
type PoliciesInForce struct {
	Version int64     `json:"version"`
	Since   time.Time `json:"since,omitzero"`
	Source  string    `json:"source"` // a policy file
}

func getPolicies(c *call) (PoliciesInForce, error) {
	now, err := c.inspector.Policies(c.ctx)
	if err != nil || now.Version == 0 {
		return PoliciesInForce{}, err
	}
	source, err := policydiff.Source(now.Policies)
	return PoliciesInForce{now.Version, now.Since, source}, err
}

// PolicyFile is a policy file, as a request has it.
type PolicyFile struct {
	Source string `json:"source"`
}

// policies reads a policy file.
func (f PolicyFile) policies(pointer string) (queue.Policies, error) {
	p, err := queue.ParsePolicies("policies", []byte(f.Source))
	if err == nil {
		return p, nil
	}
	bad := problemf(http.StatusUnprocessableEntity, "invalid-policies", "%s", plain(err))
	for line := range strings.Lines(plain(err)) {
		if len(bad.Errors) < mostErrors {
			what, want, _ := strings.Cut(strings.TrimSpace(line), "; ")
			bad.Errors = append(bad.Errors, FieldError{Pointer: pointer, Detail: what, Remedy: want})
		}
	}
	return p, bad
}

// PolicyCount says how many policies and tenants a valid file has.
type PolicyCount struct {
	Policies int `json:"policies"`
	Tenants  int `json:"tenants"`
}

func checkPolicies(_ *call, in PolicyFile) (PolicyCount, error) {
	p, err := in.policies("/source")
	return PolicyCount{len(p.Policies), len(p.Tenants)}, err
}

// PolicyChanges are the lines that a file would change, with + and -, and the lines above that
// they belong to.
type PolicyChanges struct {
	Version int64    `json:"version"` // of the policies in force, to be sent with the new ones
	Changes []string `json:"changes"`
}

func diffPolicies(c *call, in PolicyFile) (PolicyChanges, error) {
	p, err := in.policies("/source")
	if err != nil {
		return PolicyChanges{}, err
	}
	now, err := c.inspector.Policies(c.ctx)
	if err != nil {
		return PolicyChanges{}, err
	}
	changes, err := policydiff.Changes(now.Policies, p)
	if changes == nil {
		changes = []string{}
	}
	return PolicyChanges{now.Version, changes}, err
}

// NewPolicies are policies that replace those of the given version.
type NewPolicies struct {
	Source  string `json:"source"`
	Version int64  `json:"version"`
	Author  string `json:"author,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

func putPolicies(c *call, in NewPolicies) (PoliciesInForce, error) {
	p, err := PolicyFile{in.Source}.policies("/source")
	if err != nil {
		return PoliciesInForce{}, err
	}
	if err := c.note(in.Author, in.Reason).ReplacePolicies(c.ctx, in.Version, p); err != nil {
		return PoliciesInForce{}, err
	}
	return getPolicies(c)
}

func history(c *call) (List[policydiff.Change], error) {
	from, n := c.page()
	versions, err := c.inspector.PolicyHistory(c.ctx, from+n+1)
	if err != nil {
		return List[policydiff.Change]{}, err
	}
	all, err := policydiff.History(versions, from+n)
	return listOf(part(all, from, n), err)
}

// Plan is a request to simulate offers under other policies.
type Plan struct {
	Source string `json:"source"` // the policies after

	// Offers are jobs as they are offered, each with the instant of its offer: "at", in seconds
	// since 1970 or as an instant. One without was offered together with the one before.
	Offers []json.RawMessage `json:"offers"`

	Against string `json:"against,omitempty"` // the policies before; those in force if it is missing
	At      string `json:"at,omitempty"`      // the field with the instant, if it is not "at"
	Takes   span   `json:"takes,omitempty"`   // how long a job runs, for concurrency limits
	Places  int    `json:"places,omitempty"`  // how many jobs the fleet runs at once; 0 for any number
}

// maxOffers is how many offers one plan can replay.
const maxOffers = 100_000

func plan(c *call, in Plan) (List[simulate.Tenant], error) {
	q, err := in.question(c)
	if err != nil {
		return List[simulate.Tenant]{}, err
	}
	offers, err := in.offers()
	if err != nil {
		return List[simulate.Tenant]{}, err
	}
	answer, err := simulate.Compare(q, offers)
	return listOf(answer.Tenants, err)
}

func (in Plan) question(c *call) (q simulate.Question, err error) {
	q.Takes, q.Places = in.Takes.duration(), in.Places
	if q.After, err = (PolicyFile{in.Source}).policies("/source"); err != nil {
		return q, err
	}
	if in.Against != "" {
		q.Before, err = PolicyFile{in.Against}.policies("/against")
	} else {
		var now queue.PolicyVersion
		now, err = c.inspector.Policies(c.ctx)
		q.Before = now.Policies
	}
	return q, err
}

func (in Plan) offers() (offers []simulate.Offer, err error) {
	if n := len(in.Offers); n == 0 || n > maxOffers {
		return nil, wrongField("/offers", fmt.Sprintf("has %d items", n), fmt.Sprintf("want 1 to %d", maxOffers))
	}
	at := in.At
	if at == "" {
		at = "at"
	}
	last := time.Unix(0, 0).UTC()
	for i, text := range in.Offers {
		o, err := simulate.ReadOffer(text, at, last)
		if err != nil {
			return nil, wrongField(fmt.Sprintf("/offers/%d", i), plain(err), `want a job with its instant, such as {"at":"2026-11-22T08:00:00Z","tenant":"school-7","user":"teacher-42"}`)
		}
		last = o.At
		offers = append(offers, o)
	}
	return offers, nil
}
