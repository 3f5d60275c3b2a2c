// Package examine judges what a queue keeps in Redis: it finds what no program of the queue
// writes, and mends what can be mended safely.
//
// It knows the keys by their documentation alone, and shares no code with the scripts that
// write them. A living queue moves while it is read. So every damage that a first look
// suspects is looked at twice more, each time at one instant; and counters are compared by
// bounds that hold whatever has moved meanwhile.
package examine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A Finding is something in Redis that should not be.
type Finding struct {
	Kind    Kind   // of damage
	Key     string // in Redis
	Seen    string
	Problem string // what comes of it, and what would be right
	Repair  string // what a repair does; "" if none is safe
}

// A Kind is a kind of damage.
type Kind string

const (
	WrongType Kind = "type"     // a key of another type
	Clock     Kind = "clock"    // Redis's clock was set back
	State     Kind = "state"    // rules remember a slot that lies too far ahead
	Bound     Kind = "bound"    // a lane or a tenant waits longer than its rules explain
	Claims    Kind = "claims"   // claims of nobody, or for a slot too far ahead
	Worker    Kind = "worker"   // a worker without a record
	Lane      Kind = "lane"     // a lane outside its index
	Index     Kind = "index"    // a member of an index that has no lane
	Tenant    Kind = "tenant"   // a tenant with lanes outside the index of tenants
	Payload   Kind = "payload"  // a payload that no job names
	ID        Kind = "id"       // an ID that says where a job waits, which is not there
	Fold      Kind = "fold"     // a job under a collapse key, for which nothing stands in a lane
	Stub      Kind = "stub"     // the place of a job under a collapse key, which is not there
	Counters  Kind = "counters" // counters that do not add up
	Meta      Kind = "meta"     // settings in meta that contradict the keys that they are about
)

// An Examiner examines one queue. Policies and Earliest say what may explain that something
// waits.
type Examiner struct {
	Client redis.UniversalClient
	Store  *store.Store

	// Policies returns the policies in force, nil for none.
	Policies func(ctx context.Context) (*schedule.Policies, error)

	// Earliest returns when rules and pauses let the first job of a lane start; false if that is unknown.
	Earliest func(ctx context.Context, lane store.Lane, job *envelope.Envelope) (at int64, known bool, err error)
}

// A damage is a finding, how to look at it again at one instant, and how to mend it.
type damage struct {
	Finding
	still func(ctx context.Context) (bool, error)
	mend  func(ctx context.Context) error
	later bool // it is mended once nothing else is left: it may follow from something else
}

// A look is one examination.
type look struct {
	*Examiner
	key    store.Keys
	prefix string
	now    int64
	behind int64 // by how much Redis's clock was set back
	found  []damage
	more   map[Kind]int // that are not in found
	names  names

	labelled map[user][]store.Lane // lanes with labels, of each user
}

// mostOfAKind is how many findings of one kind are looked at. A repair comes again for the
// others.
const mostOfAKind = 1000

// add notes what is suspected.
func (l *look) add(d damage) {
	if l.count(d.Kind) >= mostOfAKind {
		l.more[d.Kind]++
		return
	}
	l.found = append(l.found, d)
}

func (l *look) count(kind Kind) (n int) {
	for _, d := range l.found {
		if d.Kind == kind {
			n++
		}
	}
	return n
}

func (l *look) findings() []Finding {
	all := make([]Finding, 0, len(l.found))
	for _, d := range l.found {
		all = append(all, d.Finding)
	}
	for kind, n := range l.more {
		if l.count(kind) > 0 {
			all = append(all, Finding{Kind: kind, Seen: fmt.Sprintf("about %d more", n), Problem: "they are looked at when the first are mended"})
		}
	}
	return all
}

// stands for a reply that says that a key has another type: that is a finding of its own.
func wrongType(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE") }

// serious returns the error of a pipeline, unless it only says that something is not there or
// has another type.
func serious(err error) error {
	if err == redis.Nil || wrongType(err) {
		return nil
	}
	return err
}

// chunk is how many keys are read at a time.
const chunk = 500

// read sends one command for each item, a chunk of them at a time.
func read[T any, C redis.Cmder](ctx context.Context, l *look, items []T, command func(redis.Pipeliner, T) C) ([]C, error) {
	all := make([]C, 0, len(items))
	for part := range slices.Chunk(items, chunk) {
		pipe := l.Client.Pipeline()
		for _, item := range part {
			all = append(all, command(pipe, item))
		}
		if _, err := pipe.Exec(ctx); serious(err) != nil {
			return nil, err
		}
	}
	return all, nil
}
