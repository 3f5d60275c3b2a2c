package store

import (
	"strconv"
	"strings"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// Most notices are hints: what they say is in Redis before they are written, and the leader looks there. Returns and
// refunds are requests about one claim. Scripts write notices, too: offer.lua, beat.lua and ack.lua know these words.

// A Notice is one thing that the leader is told. Its subject is the name of a lane, and its text the first job of that,
// as the lane holds it; or the subject is one of the words below, and the text is what stands behind the word there.
type Notice struct{ Subject, Text string }

// The subjects of notices that are not lanes. Those of clients and workers end with a
// number where one message can hold several.
const (
	NoticeFold     = "!fold"     // lane whose job with a collapse key was replaced
	NoticeLater    = "!later"    // instant at which something matures
	NoticeFull     = "!full"     // escaped tenant whose backlog is above its capacity
	NoticeFinished = "!finished" // claims that have ended, see ParseFinished
	NoticeWorkers  = "!workers"  // worker that is new
	NoticePlaces   = "!places"   // worker, and how many places it has
	NoticeReturn   = "!return"   // a Return
	NoticeRefund   = "!refund"   // a Refund
	NoticePolicies = "!policies" // version
	NoticePaused   = "!paused"   // scope
	NoticeCancel   = "!cancel"   // ID
	NoticeDropped  = "!dropped"  // ID of a cancelled job that others than the leader have dropped
	NoticeTenant   = "!tenant"   // escaped tenant whose lanes have changed
	NoticeLowered  = "!lowered"  // escaped tenant whose lanes have lower bounds
	NoticeClock    = "!clock"    // escaped tenant and user whose clock was set
	NoticeRepaired = "!repaired" // nothing: keys were repaired
	NoticeLeases   = "!leases"   // nothing: another partition has given places back that this one waits for
)

// The kinds of returned jobs, and what the rules get back.
const (
	ReturnUnstarted = "unstarted" // all rules: the job has not started, and others would not start there either
	ReturnLate      = "late"      // all rules: the job has missed its slot
	ReturnChanged   = "changed"   // all rules: the job was cancelled, or is another one than the leader has decided about
	ReturnPaused    = "paused"    // none: the handler has run, or was interrupted
	ReturnRefunded  = "refunded"  // the rules of the user, who has seen nothing of the job
	ReturnSentOn    = "sent on"   // the same: this worker could not run it, nor others until an instant
)

// A Return asks the leader to take a job back from its worker. While the leader has not done so the worker holds the
// claim on, and runs nothing under it.
type Return struct {
	Worker string
	Claim  envelope.Claim
	Kind   string // one of the words above
	Late   int64  // how long after its slot a late job came, in µs
	Scope  string // that it pauses; "" for none
	Until  int64  // the end of that pause, or until when the worker can run no job, µs
	Reason string // of that pause; may be empty

	// Counted is the job that the rules have counted, where another one has taken its place since; nil if it is the one
	// that comes back, or is not known.
	Counted *envelope.Envelope
}

// Notice returns the notice that asks for the return.
func (r Return) Notice() Notice {
	words := []string{r.Worker, r.Claim.String(), r.Kind, strconv.FormatInt(r.Late, 10), r.Scope, strconv.FormatInt(r.Until, 10), r.Reason}
	if r.Counted != nil {
		words = append(words, whatIsCounted(r.Counted))
	}
	return Notice{NoticeReturn, Pack(words...)}
}

// ParseReturn reads the text of a notice about a return; false for a malformed one.
func ParseReturn(text string) (r Return, ok bool) {
	words := Words(text)
	if len(words) != 7 && len(words) != 8 {
		return r, false
	}
	r = Return{Worker: words[0], Kind: words[2], Late: number(words[3]), Scope: words[4], Until: number(words[5]), Reason: words[6]}
	var err error
	if r.Claim, err = envelope.ParseClaim(words[1]); err == nil && len(words) == 8 {
		r.Counted, err = envelope.Open(words[7])
	}
	return r, err == nil
}

// A Refund gives the cost of a job that its user has not seen back to the user's rules. The job is done, or has failed:
// its claim is over, and names the slot that is given back.
type Refund struct {
	Claim envelope.Claim
	Job   *envelope.Envelope // what limits count of it: its type, cost, keys and costs
}

// String returns the text of the notice that asks for the refund. The script that ends the claim writes it, if the
// claim was still held.
func (r Refund) String() string { return Pack(r.Claim.String(), whatIsCounted(r.Job)) }

// whatIsCounted returns a job with nothing but what limits count of it.
func whatIsCounted(job *envelope.Envelope) string {
	counted := envelope.Envelope{
		Stamp: job.Stamp, Priority: job.Priority, MaxAttempts: envelope.DefaultAttempts,
		Type: job.Type, Cost: job.Cost, Keys: job.Keys, Costs: job.Costs,
	}
	return counted.String()
}

// ParseRefund reads the text of a notice about a refund; false for a malformed one.
func ParseRefund(text string) (r Refund, ok bool) {
	words := Words(text)
	if len(words) != 2 {
		return r, false
	}
	var malformed, unreadable error
	r.Claim, malformed = envelope.ParseClaim(words[0])
	r.Job, unreadable = envelope.Open(words[1])
	return r, malformed == nil && unreadable == nil
}

// ParseFinished reads which claims have ended: each line is the name of one. A malformed one, which no
// leader has made, is left out.
func ParseFinished(text string) (ended []envelope.Claim) {
	for name := range strings.Lines(text) {
		if claim, err := envelope.ParseClaim(strings.TrimSuffix(name, "\n")); err == nil {
			ended = append(ended, claim)
		}
	}
	return ended
}

// A message of a commit in a worker's mailbox is packed words ([Words]), three for each thing that it tells: one of the
// first three words below, and two more. MessageLead is a message by itself, without packing: [Store.Resign] writes it.
const (
	MessageJob    = "!job"    // a claim and its job, or "" if the job has to be read
	MessageNext   = "!next"   // the same, and others may wait for the end of the job
	MessageDeputy = "!deputy" // the worker's name and "": it is a deputy; "" and "": it is none any more
	MessageLead   = "!lead"   // lead now
)
