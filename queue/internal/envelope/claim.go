package envelope

import (
	"errors"
	"strconv"
	"strings"
)

// The name of a claim is "stamp spent lane [slot]":
//
//	stamp  of the job
//	spent  the slot that the rules remember
//	lane   from which the job came
//	slot   from when the job may start: spent, if it is missing. It is earlier where the worker does
//	       not know the time any better
//
// Stamp and slot make it unique; there is no counter in it.

// ClaimName returns the name of a claim.
func ClaimName(stamp string, spent, slot int64, lane Lane) string {
	name := stamp + " " + strconv.FormatInt(spent, 10) + " " + lane.Name()
	if slot != spent {
		name += " " + strconv.FormatInt(slot, 10)
	}
	return name
}

// ClaimSlot returns the instant from which a claimed job may start.
func ClaimSlot(claim string) int64 {
	words := strings.Split(claim, " ")
	slot, _ := strconv.ParseInt(words[min(1, len(words)-1)], 10, 64)
	if len(words) >= 4 {
		slot, _ = strconv.ParseInt(words[3], 10, 64)
	}
	return slot
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
