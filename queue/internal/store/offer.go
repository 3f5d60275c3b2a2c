package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// An offer needs no leader. offer.lua gives each job a stamp, puts it at the end of its lane, and decides about
// nothing but capacity, repeated IDs and collapse keys. If a lane gets its first job, and somebody leads, a
// notice tells the leader.
//
// A client that gets no reply offers the batch again under the same name. The script keeps the receipts of a batch
// for a minute under that name: so the second offer does nothing, and returns what became of the first.

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

// bounds returns the length of the backlog above which the leader is told, and the one at which jobs
// are refused. Where the oldest is to make room, the leader sees to that; the backlog is bounded
// without a leader too.
func (t OfferTenant) bounds() (capacity, most int64) {
	if t.Capacity == 0 {
		return unbounded, unbounded
	}
	capacity = min(int64(t.Capacity), unbounded/4)
	if t.MakesRoom {
		return capacity, 2*capacity + 1000
	}
	return capacity, capacity
}

// unbounded is longer than any backlog, and a number that Lua can hold.
const unbounded int64 = 1 << 53

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
	keys, args := s.offerWords(o)
	reply := readFields(s.runPatiently(ctx, "offer", keys, args...), 5)
	if reply.err != nil {
		if strings.HasPrefix(reply.err.Error(), "STALE ") {
			return OfferReply{}, ErrStale
		}
		return OfferReply{}, reply.err
	}
	return readOffer(reply, o)
}

// offerWords returns the keys and the arguments of the script.
func (s *Store) offerWords(o Offer) (keys []string, args []any) {
	keys = []string{
		s.key.Meta(), s.key.Notices(), s.key.Tenants(), s.key.Later(), s.key.Refused(), s.key.Drops(), s.key.Batch(o.Batch), s.key.Paused(),
		s.key.Offers(),
	}
	args = []any{Schema, o.Policies, o.Keep.Milliseconds(), IDMemory.Milliseconds(), 0, len(o.Tenants), 0, len(o.Jobs)}
	for _, t := range o.Tenants {
		capacity, most := t.bounds()
		keys = append(keys, s.key.Tenant(t.Name))
		args = append(args, Escape(t.Name), capacity, most)
	}
	type index struct{ tenant, priority int }
	indexes := make(map[index]int)
	for _, j := range o.Jobs {
		i := index{j.Tenant, j.Lane.Priority}
		if indexes[i] == 0 {
			indexes[i] = len(indexes) + 1
			keys = append(keys, s.key.Due(j.Lane.Tenant, j.Lane.Priority))
			args = append(args, j.Tenant+1, j.Lane.Priority)
		}
	}
	for _, j := range o.Jobs {
		keys = append(keys, s.key.Lane(j.Lane))
		args = append(args, indexes[index{j.Tenant, j.Lane.Priority}], j.Body)
	}
	for n, j := range o.Jobs {
		keys, args = s.offerOptions(keys, args, n+1, j)
	}
	args[4], args[6] = len(keys)+1, len(indexes)
	for _, scope := range o.Scopes {
		keys = append(keys, s.key.State(scope))
	}
	return keys, args
}

// offerOptions adds what is unusual about a job.
func (s *Store) offerOptions(keys []string, args []any, number int, j OfferJob) ([]string, []any) {
	add := func(name string, value any) { args = append(args, number, name, value) }
	addKey := func(name, key string) {
		keys = append(keys, key)
		add(name, len(keys))
	}
	if j.NotBefore != 0 {
		add("after", j.NotBefore)
	}
	if j.ID != "" {
		addKey("id", s.key.ID(j.ID))
		if j.IDFor != IDMemory {
			add("known", j.IDFor.Milliseconds())
		}
	}
	if j.Collapse != "" {
		addKey("fold", s.key.Fold(j.Lane.Tenant, j.Lane.User))
		add("collapse", j.Collapse)
	}
	if j.Spilled != "" {
		addKey("spilled", s.key.Body(j.Spilled))
		add("payload", j.Payload)
	}
	if j.Refuse != "" {
		add("refuse", j.Refuse)
		add("rule", j.Rule)
	}
	return keys, args
}

// readOffer reads the reply of the script. It writes receipts as lines: an array with an item for each would cost
// Redis and the client more than the rest.
func readOffer(reply fields, o Offer) (OfferReply, error) {
	r := OfferReply{Now: reply.int(0), Pauses: pairs(reply.texts(2)), States: make(map[string]string), Replaced: reply.texts(4)}
	for i, text := range reply.texts(3) {
		if text != "" && i <= len(o.Scopes) {
			r.States[o.Scopes[i-1]] = text
		}
	}
	receipts, err := readReceipts(reply.text(1), o)
	r.Receipts = receipts
	return r, err
}

// readReceipts reads the lines of the script. What is accepted makes the backlog longer.
func readReceipts(text string, o Offer) ([]OfferReceipt, error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 1+len(o.Tenants)+len(o.Jobs) {
		return nil, fmt.Errorf("queue: %d receipts for %d jobs of %d tenants", len(lines), len(o.Jobs), len(o.Tenants))
	}
	stamp, err := strconv.ParseInt(lines[0], 16, 64)
	if err != nil {
		return nil, fmt.Errorf("queue: malformed stamp %q", lines[0])
	}
	waiting := make([]int, len(o.Tenants))
	for t := range waiting {
		waiting[t], _ = strconv.Atoi(lines[1+t])
	}
	receipts := make([]OfferReceipt, len(o.Jobs))
	for i, line := range lines[1+len(o.Tenants):] {
		r, before := &receipts[i], &waiting[o.Jobs[i].Tenant]
		r.Stamp, r.Waiting = envelope.Stamp(stamp+int64(i)), *before
		if r.Place, err = strconv.Atoi(line); err == nil {
			r.Status = StatusAccepted
			*before++
			continue
		}
		words := append(strings.SplitN(line, " ", 3), "", "")
		r.Status, r.Reason, r.Rule = words[0], words[1], words[2]
	}
	return receipts, nil
}
