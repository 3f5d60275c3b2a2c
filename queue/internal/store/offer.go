package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
//
// The client decides about policies: whether a job could never start, or only after its latest start (Refuse), and
// which capacity a tenant has. So an offer names the version of the policies by which that was decided, and the
// script refuses it if another version is in force.

// An Offer is a batch of jobs for their lanes.
type Offer struct {
	Batch    string         // a name for this batch alone: offered again under it the batch gets the same receipts
	Keep     time.Duration  // as long as the name is known
	Policies int64          // version of the policies that the offer obeys; 0 for none
	Tenants  []OfferTenant  // of the jobs, each once
	Subjects []OfferSubject // who else has a backlog with a capacity, each once
	Jobs     []OfferJob     // in the order in which they enter their lanes
	Scopes   []string       // whose states the estimates need
}

// An OfferTenant is what the door has to know of a tenant.
type OfferTenant struct {
	Name      string
	Capacity  int  // of the backlog; 0 for no bound
	MakesRoom bool // a full backlog drops its oldest job rather than a new one
}

// An OfferSubject is a user, or a limit by name for the values of its key, whose backlog has a capacity.
type OfferSubject struct {
	Scope    string
	Capacity int
	Rule     string // what the receipt of a job says that it has no room for
	Plain    []Lane // a user's three lanes without a label; nil of a limit
}

// An OfferJob is one job of an offer. Zero values mean that nothing special is asked for.
type OfferJob struct {
	Tenant   int   // its place among the tenants of the offer
	Subjects []int // places among the subjects of the offer
	Lane     Lane
	Body     []byte // the envelope without its stamp, which the script puts before it

	// NotBefore lets the job wait in later until an instant, in µs, rather than in its lane.
	NotBefore int64

	// ID is the caller's own. While Redis knows it, which is for IDFor, a job with the same ID is a duplicate.
	ID    string
	IDFor time.Duration

	// Collapse is the collapse key: a job that waits under it is replaced.
	Collapse string

	// Digest is the digest key, and Costs what the job costs ([envelope.Envelope.Costing]): it joins the open digest of its
	// lane with that key, or begins one. Terms are those of a digest, as its policy has them.
	Digest, Costs string
	Terms         DigestTerms

	// Payload is kept apart in a key named after Spilled, if that is set; otherwise it is part of Body.
	Payload []byte
	Spilled string

	// Refuse is why the client refuses the job, and Rule which rule does; "" if the job is not refused. It is
	// offered all the same, so that it is recorded and counted.
	Refuse string
	Rule   string
}

// DigestTerms say when a digest is full, and when it is due.
type DigestTerms struct {
	Max        int   // members of a full one
	Wait, Idle int64 // µs from its first, and from its last member; 0 for none
	Due        int64 // the instant, in µs, for a digest that begins; then Wait and Idle do not count. 0 for none
}

// bounds returns the length of the backlog above which the leader is told, and the one at which jobs
// are refused. Where the oldest job makes room the leader drops it, and the backlog may be longer until then: twice
// the capacity and a thousand jobs bound it also where nobody leads.
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

// The statuses of receipts. The script writes the place in line for an accepted job, and these letters for the others.
const (
	StatusAccepted  = "a" // it waits in its lane
	StatusLater     = "l" // it waits for its time
	StatusReplaced  = "r" // it took the place of the job that waited under its collapse key
	StatusDuplicate = "d" // its ID is known: nothing was done
	StatusJoined    = "w" // it waits in a digest: it has joined it, or begun one that is due later
	StatusRefused   = "x" // it never runs; a record says why
)

// An OfferReply says what became of an offer.
type OfferReply struct {
	Now      int64             // when the jobs were offered, or the batch was offered again
	Receipts []OfferReceipt    // in the order of the jobs
	Pauses   map[string]int64  // of the scopes of the jobs: scope → until when
	States   map[string]string // what the rules of the asked scopes remember; none for a scope without a state

	// Replaced are the beginnings of the jobs whose places others took: the caller deletes their payloads and
	// notes what became of their IDs ([Store.Dropped]). There are none when a batch is offered again.
	Replaced []string
}

// An OfferReceipt says what became of a job.
type OfferReceipt struct {
	Stamp, Status string
	Place         int    // in its lane, from 1; of an accepted job alone
	Digest        string // the stamp of the digest that it is a member of; "" for any other job
	Due           int64  // when a digest that has come or comes into its lane by time does so; 0 for any other
	Waiting       int    // jobs in the tenant's backlog before it
	Reason, Rule  string // of a refused job
}

// ErrStale is returned for an offer that obeys other policies than those in force. Nothing was done: the caller reads
// the policies, and offers the batch anew.
var ErrStale = errors.New("queue: other policies are in force")

// Offer puts jobs at the ends of their lanes, in one round trip. A job that cannot be accepted has a receipt that says
// so: an error is about the whole batch. If no reply has come the caller offers the same batch again.
func (s *Store) Offer(ctx context.Context, o Offer) (OfferReply, error) {
	keys, args := s.offerWords(o)
	reply := readFields(s.runPatiently(ctx, "offer", keys, args...), 5)
	if reply.err != nil {
		if strings.HasPrefix(reply.err.Error(), "STALE ") {
			return OfferReply{}, ErrStale
		}
		return OfferReply{}, reply.err
	}
	return readOffer(reply, o, s.Of)
}

// offerWords returns the keys and the arguments of the script. Tenants and indexes are sent once for the batch, and
// jobs name them by their numbers: most jobs of a batch share them.
func (s *Store) offerWords(o Offer) (keys []string, args []any) {
	keys = []string{
		s.key.Meta(), s.key.Notices(), s.key.Tenants(), s.key.Later(), s.key.Refused(), s.key.Drops(), s.key.Batch(o.Batch), s.key.Paused(),
		s.key.Offers(), s.key.Backlogs(),
	}
	args = []any{Schema, o.Policies, o.Keep.Milliseconds(), IDMemory.Milliseconds(), 0, len(o.Tenants), 0, len(o.Jobs), len(o.Subjects), s.Number, s.Of}
	keys = slices.Grow(keys, len(o.Tenants)+len(o.Jobs)+len(o.Scopes)+len(o.Subjects))
	args = slices.Grow(args, 3*len(o.Tenants)+2*len(o.Jobs)+4*len(o.Subjects))
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
	for _, subject := range o.Subjects {
		first := 0
		if len(subject.Plain) > 0 {
			first = len(keys) + 1
		}
		for _, lane := range subject.Plain {
			keys = append(keys, s.key.Lane(lane))
		}
		args = append(args, subject.Scope, min(int64(subject.Capacity), unbounded), subject.Rule, first)
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

// offerOptions adds what is unusual about a job, as words behind all jobs: a plain job costs one key and two arguments.
func (s *Store) offerOptions(keys []string, args []any, number int, j OfferJob) ([]string, []any) {
	add := func(name string, value any) { args = append(args, number, name, value) }
	addKey := func(name, key string) {
		keys = append(keys, key)
		add(name, len(keys))
	}
	if len(j.Subjects) > 0 {
		var numbers strings.Builder
		for _, subject := range j.Subjects {
			fmt.Fprintf(&numbers, "%d ", subject+1)
		}
		add("counted", numbers.String())
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
	if j.Collapse != "" || j.Digest != "" {
		addKey("fold", s.key.Fold(j.Lane.Tenant, j.Lane.User))
	}
	if j.Collapse != "" {
		add("collapse", envelope.FoldName(j.Collapse))
	}
	if j.Digest != "" {
		place := envelope.DigestPlace(j.Lane, j.Digest)
		addKey("digest", s.key.Digest(j.Lane.Tenant, j.Lane.User, place))
		add("place", place)
		add("costs", j.Costs)
		add("max", j.Terms.Max)
		for _, term := range []struct {
			name string
			us   int64
		}{{"wait", j.Terms.Wait}, {"idle", j.Terms.Idle}, {"due", j.Terms.Due}} {
			if term.us > 0 {
				add(term.name, term.us)
			}
		}
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
func readOffer(reply fields, o Offer, partitions int) (OfferReply, error) {
	r := OfferReply{Now: reply.int(0), Pauses: pairs(reply.texts(2)), States: make(map[string]string), Replaced: reply.texts(4)}
	for i, text := range reply.texts(3) {
		if text != "" && i <= len(o.Scopes) {
			r.States[o.Scopes[i-1]] = text
		}
	}
	receipts, err := readReceipts(reply.text(1), o, partitions)
	r.Receipts = receipts
	return r, err
}

// readReceipts reads the lines of the script: the stamp of the first job, the backlogs of the tenants before the batch,
// and a line for each job. Each job that entered a lane makes the backlog longer for those behind it.
func readReceipts(text string, o Offer, partitions int) ([]OfferReceipt, error) {
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
		r.Stamp, r.Waiting = envelope.Stamp(stamp+int64(i*partitions)), *before
		if r.Place, err = strconv.Atoi(line); err == nil {
			r.Status = StatusAccepted
			if o.Jobs[i].Digest != "" {
				r.Digest = r.Stamp
			}
			*before++
			continue
		}
		words := append(strings.SplitN(line, " ", 3), "", "")
		if r.Status = words[0]; r.Status == StatusJoined {
			r.Digest, r.Due = words[1], number(words[2])
			continue
		}
		r.Reason, r.Rule = words[1], words[2]
	}
	return receipts, nil
}
