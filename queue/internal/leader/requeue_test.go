package leader

import (
	"testing"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A job carries the slot of its first claim while it stands at the front of its lane; in the place of another job it carries that
// one's.
func TestTheSlotOfAJobThatComesBack(t *testing.T) {
	job := func(slot int64) envelope.Envelope {
		return envelope.Envelope{Stamp: envelope.Stamp(5), Slot: slot, Cost: 1, MaxAttempts: 1, Priority: envelope.Normal, Type: "x"}
	}
	back, waits := job(4), job(0)
	for name, test := range map[string]struct {
		front       bool
		before, was int64  // the slot that it carries already, and that of the claim it had
		other       string // waits under its collapse key
		want        int64
	}{
		"for the first time":                     {front: true, was: 7, want: 7},
		"again":                                  {front: true, before: 2, was: 7, want: 2},
		"from a claim that is not known":         {front: true, want: 1},
		"to the end":                             {before: 2, was: 7},
		"in the place of one that has come back": {front: true, before: 2, was: 7, other: back.String(), want: 4},
		"in the place of one that has not":       {front: true, before: 2, was: 7, other: waits.String()},
	} {
		env := job(test.before)
		if got := (comeback{env: &env, front: test.front, slot: test.was}).slotBy(test.other); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
