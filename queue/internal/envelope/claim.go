package envelope

import (
	"errors"
	"strconv"
	"strings"
)

// The name of a claim is "stamp spent lane [first [paid]]":
//
//	stamp  of the job
//	spent  the slot that windows and spacings remember
//	lane   from which the job came
//	first  the slot that the job was given first; spent, if it is missing
//	paid   the slot that the leak has counted, for a job that came late and got another one;
//	       spent, if it is missing
//
// Stamp and slot make it unique; there is no counter in it.

// ClaimName returns the name of a claim: spent is the slot that the rules about starts
// remember, slot the one that the job was given first. They differ for a job that came late,
// and for a worker that is far away.
func ClaimName(stamp string, spent, slot int64, lane Lane) string {
	name := stamp + " " + strconv.FormatInt(spent, 10) + " " + lane.Name()
	if slot != spent {
		name += " " + strconv.FormatInt(slot, 10)
	}
	return name
}

// ClaimSlot returns the slot that a claimed job was given first.
func ClaimSlot(claim string) int64 {
	words := strings.Split(claim, " ")
	slot, _ := strconv.ParseInt(words[min(1, len(words)-1)], 10, 64)
	if len(words) >= 4 {
		slot, _ = strconv.ParseInt(words[3], 10, 64)
	}
	return slot
}

// ClaimPaid returns the slot at which the rules about slots have paid for a claimed job.
func ClaimPaid(claim string) int64 {
	words := strings.Split(claim, " ")
	paid, _ := strconv.ParseInt(words[min(1, len(words)-1)], 10, 64)
	if len(words) == 5 {
		paid, _ = strconv.ParseInt(words[4], 10, 64)
	}
	return paid
}

// Restarted returns the name of a claim whose job came late, and got another slot: spent is
// what the rules about starts remember.
func Restarted(claim string, spent int64) string {
	stamp, _, lane, _ := ParseClaim(claim)
	words := []string{stamp, strconv.FormatInt(spent, 10), lane.Name(), strconv.FormatInt(ClaimSlot(claim), 10), strconv.FormatInt(ClaimPaid(claim), 10)}
	return strings.Join(words, " ")
}

// ParseClaim reads the name of a claim.
func ParseClaim(claim string) (stamp string, slot int64, lane Lane, err error) {
	stamp, rest, _ := strings.Cut(claim, " ")
	when, name, _ := strings.Cut(rest, " ")
	name, _, _ = strings.Cut(name, " ")
	if slot, err = strconv.ParseInt(when, 10, 64); err != nil {
		return "", 0, Lane{}, errors.New("malformed claim " + strconv.Quote(claim))
	}
	lane, err = ParseLane(name)
	return stamp, slot, lane, err
}

// ClaimedJob returns what all claims of a job have in common: its stamp and its lane.
func ClaimedJob(claim string) string {
	stamp, rest, _ := strings.Cut(claim, " ")
	_, rest, _ = strings.Cut(rest, " ")
	lane, _, _ := strings.Cut(rest, " ")
	return stamp + " " + lane
}
