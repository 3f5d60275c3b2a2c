package store

import (
	"strconv"
	"strings"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A Notice is one thing that the leader is told. Its subject is the name of a lane whose
// first job it is about, or one of the words below.
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
	NoticeTenant   = "!tenant"   // escaped tenant whose lanes have changed
	NoticeLowered  = "!lowered"  // escaped tenant whose lanes have lower bounds
	NoticeRepaired = "!repaired" // nothing: keys were repaired
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

// Notice returns the notice that says so.
func (r Return) Notice() Notice {
	return Notice{NoticeReturn, Pack(r.Worker, r.Claim.String(), r.Kind, strconv.FormatInt(r.Late, 10), r.Scope, strconv.FormatInt(r.Until, 10), r.Reason)}
}

// ParseReturn reads the text of such a notice.
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

// String returns the text of the notice that says so. Scripts write that.
func (r Refund) String() string { return Pack(r.Claim.String(), strconv.Itoa(r.Cost)) }

// ParseRefund reads the text of such a notice.
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
	MessageJob    = "!job"    // a claim and its job, or "" if the job has to be read
	MessageNext   = "!next"   // the same, and others wait for the end of the job
	MessageDeputy = "!deputy" // the worker's name or "", and "": look after the leader, or no more
	MessageLead   = "!lead"   // alone: lead now
)
