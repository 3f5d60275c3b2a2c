// Package envelope is a job as Redis keeps it: one string of bytes, written and read in
// Go alone. Scripts pass it on and look at nothing but its stamp, and at the slot behind that of a job that has come back.
//
//	stamp     13 hexadecimal digits: the instant of its enqueueing, which no other job of
//	          the queue has, and the job's ID if it has no other
//	options   (tag, length, value)*, only those that are not the usual ones, then 0
//	type      length, bytes
//	payload   the rest
//
// Numbers and lengths are varints. An option that this version does not know is kept
// and passed on. If its tag says that it must be understood (see [Critical]) the
// job cannot be run here, and [Open] says so.
//
// An envelope is written many times: by the offer, when the job has failed or was returned, and when it is revived.
// Each time the stamp stays, and the options say what the queue remembers of the job by then.
//
// The package also has what the parts of a queue call jobs by: claims (claim.go), lanes and scopes (lane.go),
// stamps (stamp.go) and instants (instant.go). How an envelope is read is in read.go, and how numbers and texts are written in
// wire.go.
package envelope

import (
	"encoding/binary"
	"errors"
	"maps"
	"time"
)

// Critical is the first tag of options that must be understood to run the job.
const Critical = 128

// The tags of options. They are never given another meaning: jobs of older and newer versions wait in the same lanes.
// An option that is not there means the usual value: cost 1, [DefaultAttempts], [Normal], and nothing for all others.
const (
	tagEnd       = 0
	tagCost      = 1
	tagDeadline  = 2  // latest start, microseconds
	tagFailures  = 3  // attempts that failed
	tagAttempts  = 4  // the most attempts
	tagPriority  = 5  // rank
	tagCollapse  = 6  // collapse key
	tagID        = 7  // the caller's own ID
	tagReady     = 8  // since when it may start, if that is not its stamp
	tagTimeout   = 9  // of one attempt, nanoseconds
	tagHeader    = 10 // name and value
	tagLost      = 11 // workers lost with it while nobody knows whether it had started
	tagSpilled   = 12 // the name of its payload, which is kept apart
	tagBegin     = 14 // the earliest start that was asked for, microseconds
	tagRevived   = 15 // when it was taken back from the dead, microseconds
	tagUntil     = 13 // end of the handler's context, microseconds
	tagYields    = 16 // 1 if further attempts can wait for the tenant's other jobs
	tagLock      = 17 // the key of a lock that is lifted when it is done
	tagError     = 18 // of the last attempt, if that failed: its beginning, for people
	tagKey       = 20 // name and value
	tagUnit      = 21 // what it costs in a unit: its name, and the number
	tagCallback  = 22 // who is told how it has ended
	tagSentOn    = 23 // 1 if its last worker could not run it
	tagDigest    = 24 // of a digest: what its record says behind the stamp
	tagDigesting = 25 // digest key
	tagSlot      = 26 // a stamp: the slot of its first claim; the first option, since commit.lua reads it
	tagLate      = 19 // how far ahead its slot has to lie, microseconds: a worker has returned it unstarted
)

// tagMember is one member of a digest: an envelope.
const tagMember = Critical

// DefaultAttempts is the most attempts of a job that says nothing else: the first and 25 more. It is part of the
// format, since jobs that have it do not carry it.
const DefaultAttempts = 26

// Priority ranks: 0 is served first. They stand in the names of lanes.
const (
	High   = 0
	Normal = 1
	Low    = 2
)

// An Envelope is a job with what the queue remembers of it. Instants are microseconds on
// Redis's clock; 0 means none.
type Envelope struct {
	// Stamp is the instant of its offer, see [Stamp]. Before the offer it is "".
	Stamp string

	// ID is the caller's own; "" if it has none.
	ID string

	// Cost is how much of each of its rules it spends, at least 1.
	Cost int

	// Deadline is its latest start, Until the end of its handler's context, and NotBefore the earliest start that
	// was asked for.
	Deadline  int64
	Until     int64
	NotBefore int64

	// Ready is since when it may start after its handler has run, or its worker was lost: it has waited for
	// its rules since then. Revived is when it was taken back from the dead.
	Ready   int64
	Revived int64

	// Failures is how many attempts have failed. Lost is 1 after a worker was lost with it while it was unknown
	// whether its handler had started: that counts as no attempt, and each further time as one.
	Failures int
	Lost     int

	// Error is the beginning of the error of the last attempt, if that failed: for people.
	Error string

	// Late is 0, or, after a worker has returned it unstarted, how far ahead of the decision its next slot has to
	// lie, in µs: 1 after the first time, and more by its lateness each time that it is late again.
	Late int64

	// Slot is, of a job that has come back to the front of its lane, the slot of its first claim there. First claims follow the
	// order of the lane, so jobs stand at the front in the order of these. 0 of a job that has not come back.
	Slot int64

	// SentOn says that the worker that had it last could not run it: it is another one's turn.
	SentOn bool

	// Yields says that further attempts wait for the tenant's other jobs: when its time has come it goes into
	// the lane of low priority.
	Yields bool

	MaxAttempts int // after so many failures it is dead
	Priority    int // a rank: of the lane in which it waits
	CollapseKey string
	Timeout     time.Duration // of one attempt; 0 for none
	Headers     map[string]string
	Keys        map[string]string // fields that limits by name count for
	Costs       map[string]int    // by unit, what limits by name count
	Type        string
	Payload     string

	// Spilled is the name of its payload, if that is kept apart: then Payload is "" in Redis, and the worker that
	// starts the job reads it.
	Spilled string

	// Callback says who is told how it has ended, as the caller writes it; "" for nobody.
	Callback string

	// Lock is the key of a lock that is lifted when it is done; "" for none.
	Lock string

	// DigestKey is the key under which it starts together with others; "" for none. Members are the jobs that a digest
	// is made of, in the order of their offers; none of any other job.
	DigestKey string
	Members   []*Envelope
	digest    string // what the record of a digest says behind the stamp

	unknown []byte // options of a newer version, verbatim
}

// ErrNewer is returned for a job with an option that must be understood and is not. A worker of the newer version can
// run it: so it is kept among the dead.
var ErrNewer = errors.New("made by a newer version")

// ErrMalformed is returned for bytes that are no job.
var ErrMalformed = errors.New("malformed job")

// Name returns the ID that people know the job by: its own, or its stamp. That of a digest is its newest member's.
func (e *Envelope) Name() string {
	if n := len(e.Members); n > 0 {
		return e.Members[n-1].Name()
	}
	if e.ID != "" {
		return e.ID
	}
	return e.Stamp
}

// CountsAs reports whether limits count a job as they count another one of its lane, which may be nil: both have the same type,
// keys and costs.
func (e *Envelope) CountsAs(other *Envelope) bool {
	return e == other || other != nil && e.Type == other.Type && e.Cost == other.Cost && maps.Equal(e.Keys, other.Keys) && maps.Equal(e.Costs, other.Costs)
}

// Offered returns the instant of its offer, which its stamp is.
func (e *Envelope) Offered() int64 {
	n, _ := readStamp(e.Stamp)
	return n
}

// Since returns the instant from which it waits for its rules: what delays it from then on is their doing. After a
// failed attempt that is the end of its backoff.
func (e *Envelope) Since() int64 {
	if e.Ready != 0 {
		return e.Ready
	}
	return e.Begin()
}

// Begin returns the instant from which it was to start: what a policy's longest wait counts from. Attempts that have
// failed do not move it.
func (e *Envelope) Begin() int64 { return max(e.Offered(), e.NotBefore, e.Revived) }

// Body returns the envelope without its stamp, which offer.lua puts before it: only Redis can give it an instant that
// no other job has.
func (e *Envelope) Body() []byte { return e.append(make([]byte, 0, 32+len(e.Type)+len(e.Payload))) }

// String returns the envelope as Redis keeps it.
func (e *Envelope) String() string {
	return string(e.append(append(make([]byte, 0, 48+len(e.Type)+len(e.Payload)), e.Stamp...)))
}

// append writes options, type and payload behind b. What has names is sorted by them, so that the same job has always the
// same bytes.
func (e *Envelope) append(b []byte) []byte {
	if len(e.Members) > 0 {
		return e.appendDigest(b)
	}
	b = e.appendMemory(b)
	b = appendNumber(b, tagCost, uint64(e.Cost), 1)
	b = appendNumber(b, tagDeadline, uint64(e.Deadline), 0)
	b = appendNumber(b, tagUntil, uint64(e.Until), 0)
	b = appendNumber(b, tagAttempts, uint64(e.MaxAttempts), DefaultAttempts)
	b = appendNumber(b, tagPriority, uint64(e.Priority), Normal)
	b = appendNumber(b, tagBegin, uint64(e.NotBefore), 0)
	b = appendNumber(b, tagTimeout, uint64(e.Timeout), 0)
	b = appendText(b, tagID, e.ID) // before all that is long: see Head
	b = appendText(b, tagCallback, e.Callback)
	b = appendText(b, tagSpilled, e.Spilled)
	b = appendText(b, tagCollapse, e.CollapseKey)
	b = appendText(b, tagDigesting, e.DigestKey)
	b = appendText(b, tagLock, e.Lock)
	b = appendText(b, tagError, e.Error)
	b = appendTexts(b, tagHeader, e.Headers)
	b = appendTexts(b, tagKey, e.Keys)
	for _, unit := range names(e.Costs) {
		pair := appendString(nil, unit)
		b = appendOption(b, tagUnit, binary.AppendUvarint(pair, uint64(e.Costs[unit])))
	}
	b = append(b, e.unknown...)
	b = append(b, tagEnd)
	b = appendString(b, e.Type)
	return append(b, e.Payload...)
}

// appendMemory writes what the queue remembers of the job's attempts: for a digest it is that of the digest.
func (e *Envelope) appendMemory(b []byte) []byte {
	if e.Slot > 0 {
		b = appendText(b, tagSlot, Stamp(e.Slot))
	}
	b = appendNumber(b, tagFailures, uint64(e.Failures), 0)
	b = appendNumber(b, tagLost, uint64(e.Lost), 0)
	b = appendNumber(b, tagLate, uint64(e.Late), 0)
	if e.SentOn {
		b = appendNumber(b, tagSentOn, 1, 0)
	}
	if e.Yields {
		b = appendNumber(b, tagYields, 1, 0)
	}
	b = appendNumber(b, tagReady, uint64(e.Ready), 0)
	return appendNumber(b, tagRevived, uint64(e.Revived), 0)
}

// appendDigest writes a digest: its members, and what the queue remembers of it.
func (e *Envelope) appendDigest(b []byte) []byte {
	b = e.appendMemory(b)
	b = appendNumber(b, tagPriority, uint64(e.Priority), Normal)
	b = appendText(b, tagError, e.Error)
	b = appendText(b, tagDigest, e.digest)
	for _, m := range e.Members {
		bare := *m
		if bare.Spilled != "" {
			bare.Payload = "" // a worker may have read it
		}
		b = appendOption(b, tagMember, []byte(bare.String()))
	}
	b = append(b, e.unknown...)
	return append(b, tagEnd, 0)
}
