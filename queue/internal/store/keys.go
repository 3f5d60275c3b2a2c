package store

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// Keys names the keys of a queue. All of them begin with its prefix, and so share one hash slot. A script
// declares every key that it touches.
//
//	key                              type    written by         what it holds
//	wc:{q}:meta                      hash    all                schema, leader, epoch, lease, seq, versions, totals
//	wc:{q}:policies                  hash    SetPolicies, W     version and source; how many partitions the queue has
//	wc:{q}:tenants                   zset    offer, leader, I   tenant → no job of it starts before, µs
//	wc:{q}:due:<tenant>[:high|:low]  zset    offer, leader, I   member → the lane's next job does not start before, µs
//	wc:{q}:lane:<t>:<m>[:high|:low]  list    offer, leader, I   waiting jobs, oldest first
//	wc:{q}:fold:<tenant>:<user>      hash    offer, leader, I   collapse key → job; its lane holds "=" and the key
//	wc:{q}:digest:<t>:<u>:<place>    hash    offer, leader, I   an open digest: its record, and its members; place is priority, label, key
//	wc:{q}:body:<name>               string  offer, *           a payload that is too large for a lane
//	wc:{q}:state:<scope>             string  leader             what the rules of a subject remember
//	wc:{q}:state:p:<tenant>:<user>   string  offer, I           what is known of the clock of a user
//	wc:{q}:tenant:<tenant>           hash    offer, *           counters
//	wc:{q}:backlogs                  zset    offer, leader, I   scope with a capacity → jobs in lanes with labels that it counts
//	wc:{q}:later                     zset    offer, W, leader   "tenant:member:rank job" → not before, µs
//	wc:{q}:workers                   zset    W, leader          worker → its lease ends, µs
//	wc:{q}:worker:<worker>           hash    W, leader          places, doubt of its clock, …
//	wc:{q}:running:<worker>          hash    leader, W          claim → job
//	wc:{q}:mailbox:<worker>          list    leader, W          claims on their way to the worker
//	wc:{q}:notices                   stream  all                what the leader is told
//	wc:{q}:paused                    zset    I, leader          scope → until when, µs
//	wc:{q}:notes                     hash    I, leader          scope → who paused it until when, and why
//	wc:{q}:history                   stream  SetPolicies        versions of the policies, who set them, and why
//	wc:{q}:cancelled                 set     I, leader, client  IDs of waiting jobs that never run
//	wc:{q}:id:<id>                   string  offer, *           where a job with the caller's own ID is, or was
//	wc:{q}:past:<id>                 hash    W, leader          what became of its attempts, for a day
//	wc:{q}:batch:<name>              string  offer              the receipts of a batch, for a minute
//	wc:{q}:drops                     stream  offer, leader, I   jobs that were dropped from lanes
//	wc:{q}:refused                   stream  offer, inbox       jobs that were refused at the door
//	wc:{q}:dead                      stream  leader, W, I       jobs without attempts left
//	wc:{q}:done                      stream  W                  jobs that are done, of those who are to be told
//	wc:{q}:told                      hash    who tells          stream → the last entry that its callbacks were offered for
//	wc:{q}:events                    stream  W                  starts and ends of attempts, while somebody listens
//	wc:{q}:offers                    stream  offer              what was offered, while somebody records it
//	wc:{q}:chart:<seconds>           hash    whoever watches    place in a ring → the queue at an instant
//
//	wc:queues                        zset    W, SetPolicies     all queues → last heard of, µs
//
// A partition of a queue that is divided has all these keys, with its number behind the name: wc:{q/3}:. Under wc:{q}: are then policies,
// history and charts, meta with the version of the policies, and of the workers
//
//	wc:{q}:workers                   zset    W                  worker → its lease ends, µs
//	wc:{q}:worker:<worker>           hash    W                  places, host, …
//	wc:{q}:wanted                    hash    W                  partition → how many workers it wants, and until when, µs
//	wc:{q}:places                    hash    leader             scope → places of a concurrency limit that partitions have
//	wc:{q}:leased:<partition>        hash    leader             scope → those of them that the partition has
//	wc:{q}:waiting:<scope>           hash    leader             partition → what it has and wants of them, until when, µs
//
// W is the worker that the key is about, or any worker; I an Inspector; * the leader, workers, Inspectors and clients.
// An Inspector may run in any program: a command line, a dashboard, a producer. A scope is q, t:<tenant>,
// u:<tenant>:<user> or l:<limit>:<values of its key>. The member of a lane is its user, or <user>|<label>. Names stand in
// keys escaped. A name of a payload is random text.
type Keys struct{ prefix string }

// A change of the keys, or of what they hold, needs a new schema if a program of the schema before would misread it:
// that program's offers, beats, elections, changes and looks are refused then. A change that such a program
// passes over, such as one more field of a hash, needs none.

// Schema is the version of the keys and of what they hold. A program of another schema
// changes nothing.
const Schema = "2"

// NewKeys returns the keys of a queue.
func NewKeys(queue string) Keys { return Keys{"wc:{" + queue + "}:"} }

// Keys of what partitions have of concurrency limits.

func (k Keys) Leases() string                { return k.prefix + "places" }
func (k Keys) LeasesOf(partition int) string { return k.prefix + "leased:" + strconv.Itoa(partition) }
func (k Keys) Waiting(scope string) string   { return k.prefix + "waiting:" + scope }

// Keys of which a queue has one each.

func (k Keys) Meta() string      { return k.prefix + "meta" }
func (k Keys) Policies() string  { return k.prefix + "policies" }
func (k Keys) Tenants() string   { return k.prefix + "tenants" }
func (k Keys) Backlogs() string  { return k.prefix + "backlogs" }
func (k Keys) Later() string     { return k.prefix + "later" }
func (k Keys) Workers() string   { return k.prefix + "workers" }
func (k Keys) Wanted() string    { return k.prefix + "wanted" }
func (k Keys) Sizes() string     { return k.prefix + "sizes" }
func (k Keys) Notices() string   { return k.prefix + "notices" }
func (k Keys) Paused() string    { return k.prefix + "paused" }
func (k Keys) Cancelled() string { return k.prefix + "cancelled" }
func (k Keys) Notes() string     { return k.prefix + "notes" }
func (k Keys) History() string   { return k.prefix + "history" }
func (k Keys) Drops() string     { return k.prefix + "drops" }
func (k Keys) Refused() string   { return k.prefix + "refused" }
func (k Keys) Dead() string      { return k.prefix + "dead" }
func (k Keys) Done() string      { return k.prefix + "done" }
func (k Keys) Told() string      { return k.prefix + "told" }
func (k Keys) Events() string    { return k.prefix + "events" }
func (k Keys) Offers() string    { return k.prefix + "offers" }

// Chart returns the key of a ring of points that lie so many seconds apart.
func (k Keys) Chart(seconds int64) string {
	return k.prefix + "chart:" + strconv.FormatInt(seconds, 10)
}

// Keys of a worker, a tenant, a payload, an ID or a batch. Names of workers, payloads and batches are random text
// without special characters; names that users choose are escaped.

func (k Keys) Worker(name string) string   { return k.prefix + "worker:" + name }
func (k Keys) Running(name string) string  { return k.prefix + "running:" + name }
func (k Keys) Mailbox(name string) string  { return k.prefix + "mailbox:" + name }
func (k Keys) Tenant(tenant string) string { return k.prefix + "tenant:" + Escape(tenant) }
func (k Keys) Body(stamp string) string    { return k.prefix + "body:" + stamp }
func (k Keys) ID(id string) string         { return k.prefix + "id:" + Escape(id) }
func (k Keys) Past(id string) string       { return k.prefix + "past:" + Escape(id) }
func (k Keys) Batch(name string) string    { return k.prefix + "batch:" + name }

// Due returns the key of the index of a tenant's lanes of one priority: it has a member for each lane with jobs.
func (k Keys) Due(tenant string, priority int) string {
	return k.prefix + "due:" + Escape(tenant) + suffixes[priority]
}

// Lane returns the key of the list that a lane is. offer.lua takes the name of the user out of this key.
func (k Keys) Lane(l Lane) string {
	return k.prefix + "lane:" + Escape(l.Tenant) + ":" + l.Member() + suffixes[l.Priority]
}

// Fold returns the key of the jobs that wait under collapse keys of a user, whatever their priority.
func (k Keys) Fold(tenant, user string) string {
	return k.prefix + "fold:" + Escape(tenant) + ":" + Escape(user)
}

// Digest returns the key of an open digest of a user, see [envelope.DigestPlace].
func (k Keys) Digest(tenant, user, place string) string {
	return k.prefix + "digest:" + Escape(tenant) + ":" + Escape(user) + ":" + place
}

// State returns the key of what the rules of a scope remember; package envelope writes the scope, escaped.
func (k Keys) State(scope string) string { return k.prefix + "state:" + scope }

// A Lane is the FIFO line of one user's waiting jobs of one priority.
type Lane = envelope.Lane

// A Claim says that a worker holds a job.
type Claim = envelope.Claim

// A ClaimRef is a claim, and the worker that has it.
type ClaimRef = envelope.ClaimRef

// suffixes end the keys of lanes and indexes, by rank: [envelope.High], [envelope.Normal], [envelope.Low].
var suffixes = [...]string{":high", "", ":low"}

// ErrInvalidQueue is returned for a name that cannot be part of a key.
var ErrInvalidQueue = errors.New("queue: invalid queue name")

// CheckQueue returns an error wrapping [ErrInvalidQueue], or nil. In keys the name stands in braces, which tell a
// cluster the hash slot, and before a colon.
func CheckQueue(name string) error {
	if name == "" || len(name) > 128 || strings.ContainsAny(name, "{}: \n\r\t\x00") {
		return fmt.Errorf("%w: %q; 1 to 128 bytes without braces, colons or white space", ErrInvalidQueue, name)
	}
	if partition.MatchString(name) {
		return fmt.Errorf("%w: %q; a slash and a number at its end stand for a partition of another queue", ErrInvalidQueue, name)
	}
	return nil
}

// partition is what the name of a partition ends with.
var partition = regexp.MustCompile(`/\d+$`)

// Escape writes a name as it stands in keys.
func Escape(name string) string { return envelope.Escape(name) }

// Unescape reads what Escape wrote.
func Unescape(name string) string { return envelope.Unescape(name) }
