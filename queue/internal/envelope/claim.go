package envelope

import (
	"errors"
	"log/slog"
	"strconv"
	"strings"
)

// A Claim says that a worker holds a job. In Redis it is a field of the worker's claims, and the
// text that [Claim.String] returns is its name there. Code that reads a name, from Redis or from a
// message, parses it once; code that sends one formats it.
//
// No two claims have the same Stamp and Spent. A claim has no number from a counter: if Redis lost the
// counter, the same claim could be made twice. Two claims are equal (==) if their names are.
//
// The slots are instants in µs on Redis's clock. They are the same where the worker knows that clock well.
type Claim struct {
	Stamp string // of the job: the instant of its offer, which no other job of the queue has
	Lane  Lane   // of the job under the policies by which it was given; it goes back there
	Slot  int64  // from when the job may start: its delay counts from here
	Spent int64  // the slot that the rules remember: Slot, or later by as much as the worker may start late
}

// A ClaimRef is a claim, and the worker that has it.
type ClaimRef struct {
	Worker string
	Claim
}

// Valid reports whether the claim is well-formed, see [ParseClaim].
func (c Claim) Valid() bool { return c.Lane != (Lane{}) }

// String returns the name of the claim: "stamp spent lane [slot]". A slot that equals spent is
// left out.
func (c Claim) String() string {
	if !c.Valid() {
		return c.Stamp
	}
	return string(c.appendName(make([]byte, 0, 96)))
}

func (c Claim) appendName(b []byte) []byte {
	b = append(append(b, c.Stamp...), ' ')
	b = append(strconv.AppendInt(b, c.Spent, 10), ' ')
	b = c.Lane.appendName(b)
	if c.Slot != c.Spent {
		b = strconv.AppendInt(append(b, ' '), c.Slot, 10)
	}
	return b
}

// LogValue logs the name of the claim.
func (c Claim) LogValue() slog.Value { return slog.StringValue(c.String()) }

// ParseClaim reads the name of a claim. Of a malformed name it returns an error, and a claim without a
// lane that has this name: such a claim can be ended, and nothing else. So the name of what ParseClaim
// returns is always the one that it was given.
func ParseClaim(name string) (Claim, error) {
	stamp, rest, _ := strings.Cut(name, " ")
	spent, rest, _ := strings.Cut(rest, " ")
	lane, slot, own := strings.Cut(rest, " ")
	if !own {
		slot = spent
	}
	c := Claim{Stamp: stamp}
	var errs [3]error
	c.Spent, errs[0] = strconv.ParseInt(spent, 10, 64)
	c.Lane, errs[1] = ParseLane(lane)
	c.Slot, errs[2] = strconv.ParseInt(slot, 10, 64)
	var again [128]byte
	if errs == [3]error{} && c.Valid() && string(c.appendName(again[:0])) == name {
		return c, nil
	}
	return Claim{Stamp: name}, errors.New("malformed claim " + strconv.Quote(name))
}
