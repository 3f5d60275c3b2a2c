package store

import (
	"strconv"
	"strings"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A Letter is one thing that the leader is told. Its subject is the name of a lane whose
// first job it is about, or one of the words below.
type Letter struct{ Subject, Text string }

// The subjects of letters that are not lanes. Those of clients and workers end with a
// number where one message can hold several.
const (
	MailFold     = "!fold"     // lane whose job with a collapse key was replaced
	MailLater    = "!later"    // instant at which something matures
	MailFull     = "!full"     // escaped tenant whose backlog is above its capacity
	MailFinished = "!finished" // claims that have ended, see ParseFinished
	MailWorkers  = "!workers"  // worker that is new
	MailPlaces   = "!places"   // worker, and how many places it has
	MailReturn   = "!return"   // a Return
	MailRefund   = "!refund"   // a Refund
	MailPolicies = "!policies" // version
	MailPaused   = "!paused"   // scope
	MailCancel   = "!cancel"   // ID
	MailTenant   = "!tenant"   // escaped tenant whose lanes have changed
	MailRepaired = "!repaired" // nothing: keys were repaired
)

// The kinds of returned jobs: what the rules get back.
const (
	ReturnUnstarted = "unstarted" // everything: the job has not started, and others would not start there either
	ReturnLate      = "late"      // everything: the job has missed its slot
	ReturnPaused    = "paused"    // nothing
	ReturnRefunded  = "refunded"  // those of the user
)

// A Return asks the leader to take a job back from its worker.
type Return struct {
	Worker string
	Claim  envelope.Claim
	Kind   string // one of the words above
	Late   int64  // how long after its slot a late job came, in µs
	Scope  string // that it pauses; "" for none
	Until  int64  // the end of that pause
	Reason string // of that pause
}

// Letter returns the letter that says so.
func (r Return) Letter() Letter {
	return Letter{MailReturn, Pack(r.Worker, r.Claim.String(), r.Kind, strconv.FormatInt(r.Late, 10), r.Scope, strconv.FormatInt(r.Until, 10), r.Reason)}
}

// ParseReturn reads the text of such a letter.
func ParseReturn(text string) (r Return, ok bool) {
	words := Words(text)
	if len(words) != 7 {
		return r, false
	}
	r = Return{Worker: words[0], Kind: words[2], Late: number(words[3]), Scope: words[4], Until: number(words[5]), Reason: words[6]}
	var err error
	r.Claim, err = envelope.ParseClaim(words[1])
	return r, err == nil
}

// A Refund gives the cost of a job that its user has not seen back to the user's rules.
type Refund struct {
	Claim envelope.Claim
	Cost  int
}

// String returns the text of the letter that says so. Scripts write that.
func (r Refund) String() string { return Pack(r.Claim.String(), strconv.Itoa(r.Cost)) }

// ParseRefund reads the text of such a letter.
func ParseRefund(text string) (r Refund, ok bool) {
	words := Words(text)
	if len(words) != 2 {
		return r, false
	}
	var err error
	r.Claim, err = envelope.ParseClaim(words[0])
	r.Cost = max(1, int(number(words[1])))
	return r, err == nil
}

// ParseFinished reads which claims have ended: their names stand in lines. A malformed one, which no
// leader has made, is left out.
func ParseFinished(text string) (ended []envelope.Claim) {
	for name := range strings.Lines(text) {
		if claim, err := envelope.ParseClaim(strings.TrimSuffix(name, "\n")); err == nil {
			ended = append(ended, claim)
		}
	}
	return ended
}

// Messages in a worker's inbox are words: one of these, and two more.
const (
	HandJob    = "!job"    // a claim and its job, or "" if the job has to be read
	HandNext   = "!next"   // the same, and others wait for the end of the job
	HandDeputy = "!deputy" // the worker's name or "", and "": look after the leader, or no more
	HandLead   = "!lead"   // alone: lead now
)
