package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// An Offer is a batch of jobs for their lanes.
type Offer struct {
	Batch    string        // offered again under the same name it gets the same receipts
	Keep     time.Duration // as long as the name is known
	Policies int64         // version of the policies that the offer obeys
	Tenants  []OfferTenant
	Jobs     []OfferJob
	Scopes   []string // whose states the estimates need
}

// An OfferTenant is what the door has to know of a tenant.
type OfferTenant struct {
	Name      string
	Capacity  int  // 0 for no bound
	MakesRoom bool // the oldest job makes room
}

// An OfferJob is one job of an offer.
type OfferJob struct {
	Tenant    int // its place among the tenants of the offer
	Lane      Lane
	Body      []byte // the envelope without its stamp
	NotBefore int64
	ID        string // the caller's own
	IDFor     time.Duration
	Collapse  string
	Payload   []byte // kept apart under Spilled, if that is set
	Spilled   string
	Refuse    string // why it is refused; "" if it is not
	Rule      string // which rule refuses it
}

// The statuses of receipts.
const (
	StatusAccepted  = "a"
	StatusLater     = "l"
	StatusReplaced  = "r"
	StatusDuplicate = "d"
	StatusRefused   = "x"
)

// An OfferReply says what became of an offer.
type OfferReply struct {
	Now      int64
	Receipts []OfferReceipt
	Pauses   map[string]int64  // scope → until when
	States   map[string]string // by scope
	Replaced []string          // the beginnings of jobs that others took the place of
}

// An OfferReceipt says what became of a job.
type OfferReceipt struct {
	Stamp, Status string
	Place         int
	Waiting       int // in the tenant's backlog before it
	Reason, Rule  string
}

// ErrStale is returned for an offer that obeys other policies than those in force.
var ErrStale = errors.New("queue: other policies are in force")

// Offer puts jobs at the ends of their lanes.
func (s *Store) Offer(ctx context.Context, o Offer) (OfferReply, error) {
	keys := newKeyList(s.key.Meta(), s.key.Mail(), s.key.Tenants(), s.key.Later(), s.key.Refused(), s.key.Drops(), s.key.Batch(o.Batch), s.key.Paused(), s.key.Pulse(), s.key.Offers())
	args := make([]any, 5, 5+4*len(o.Tenants)+15*len(o.Jobs))
	for _, t := range o.Tenants {
		args = append(args, Escape(t.Name), keys.number(s.key.Tenant(t.Name)), t.Capacity, flag(t.MakesRoom))
	}
	for _, j := range o.Jobs {
		args = s.offerArgs(args, keys, j)
	}
	first := len(keys.keys) + 1
	for _, scope := range o.Scopes {
		keys.keys = append(keys.keys, s.key.State(scope))
	}
	args[0], args[1], args[2], args[3], args[4] = Schema, o.Policies, o.Keep.Milliseconds(), first, len(o.Tenants)
	reply := readFields(s.runPatiently(ctx, "offer", keys.keys, args...), 5)
	if reply.err != nil {
		if strings.HasPrefix(reply.err.Error(), "STALE ") {
			return OfferReply{}, ErrStale
		}
		return OfferReply{}, reply.err
	}
	return readOffer(reply, o)
}

func (s *Store) offerArgs(args []any, keys *keyList, j OfferJob) []any {
	id, fold, spilled := 0, 0, 0
	if j.ID != "" {
		id = keys.number(s.key.ID(j.ID))
	}
	if j.Collapse != "" {
		fold = keys.number(s.key.Fold(j.Lane.Tenant, j.Lane.User))
	}
	if j.Spilled != "" {
		spilled = keys.number(s.key.Body(j.Spilled))
	}
	return append(args, j.Tenant+1, Escape(j.Lane.User), j.Lane.Name(), keys.number(s.key.Lane(j.Lane)),
		keys.number(s.key.Due(j.Lane.Tenant, j.Lane.Priority)), j.Body, j.NotBefore, id, j.IDFor.Milliseconds(),
		fold, j.Collapse, spilled, j.Payload, j.Refuse, j.Rule)
}

func readOffer(reply fields, o Offer) (OfferReply, error) {
	r := OfferReply{Now: reply.int(0), Pauses: pairs(reply.texts(2)), States: make(map[string]string), Replaced: reply.texts(4)}
	for i, text := range reply.texts(3) {
		if text != "" && i <= len(o.Scopes) {
			r.States[o.Scopes[i-1]] = text
		}
	}
	lines := strings.Split(reply.text(1), "\n")
	if len(lines) != len(o.Jobs) {
		return r, fmt.Errorf("queue: %d receipts for %d jobs", len(lines), len(o.Jobs))
	}
	for _, line := range lines {
		words := strings.SplitN(line, " ", 6)
		if len(words) != 6 {
			return r, fmt.Errorf("queue: malformed receipt %q", line)
		}
		place, _ := strconv.Atoi(words[2])
		waiting, _ := strconv.Atoi(words[3])
		r.Receipts = append(r.Receipts, OfferReceipt{words[0], words[1], place, waiting, strings.TrimPrefix(words[4], "-"), words[5]})
	}
	return r, nil
}

// pairs reads the members of a sorted set with their scores.
func pairs(texts []string) map[string]int64 {
	all := make(map[string]int64, len(texts)/2)
	for i := 0; i+1 < len(texts); i += 2 {
		score, _ := strconv.ParseFloat(texts[i+1], 64)
		all[texts[i]] = int64(score)
	}
	return all
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
