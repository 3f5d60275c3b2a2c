package store

import (
	"slices"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// What a worker writes of a claim is what the leader reads.
func TestNoticesAboutClaims(t *testing.T) {
	t.Parallel()
	claim := envelope.Claim{Stamp: "35d013b37e000", Lane: envelope.Lane{Tenant: "t", User: "u", Priority: 1}, Slot: 1, Spent: 1}
	for _, want := range []Return{
		{Worker: "a", Claim: claim, Kind: ReturnLate, Late: 7},
		{Worker: "a", Claim: claim, Kind: ReturnPaused, Scope: "t:t", Until: 5},
		{Worker: "a", Claim: claim, Kind: ReturnRefunded, Scope: "u:t:u", Until: 5, Reason: "429 too many requests"},
	} {
		if got, ok := ParseReturn(want.Notice().Text); !ok || got != want {
			t.Errorf("%+v, %v; want %+v", got, ok, want)
		}
	}
	job := &envelope.Envelope{
		Stamp: claim.Stamp, Priority: 1, MaxAttempts: 3, Type: "push", Payload: "hello", Failures: 2,
		Cost: 3, Keys: map[string]string{"domain": "example.com"}, Costs: map[string]int{"tokens": 8},
	}
	got, ok := ParseRefund(Refund{Claim: claim, Job: job}.String())
	if !ok || got.Claim != claim || !got.Job.CountsAs(job) || len(got.Job.Payload) > 0 {
		t.Errorf("%+v of job %+v, %v; want %+v", got, got.Job, ok, job)
	}
	for _, malformed := range []string{"", "a", "4 late", Pack("a", "b", ReturnLate, "1", "", "0", "")} {
		if got, ok := ParseReturn(malformed); ok {
			t.Errorf("%q is read as %+v", malformed, got)
		}
		if got, ok := ParseRefund(malformed); ok {
			t.Errorf("%q is read as %+v", malformed, got)
		}
	}
}

// A notice says of many claims that they have ended. One that is malformed hides no other.
func TestFinishedClaims(t *testing.T) {
	t.Parallel()
	want := []Claim{{Stamp: "a", Lane: laneOf("u"), Slot: 1, Spent: 1}, {Stamp: "b", Lane: laneOf("v"), Slot: 2, Spent: 3}}
	text := strings.Join([]string{want[0].String(), "malformed", "", want[1].String()}, "\n")
	if got := ParseFinished(text); !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
	if got := ParseFinished(""); got != nil {
		t.Errorf("%v of an empty notice", got)
	}
}

// One notice tells the leader of all the ends that a worker has told together, also of those whose claims were lost.
func TestAnAckTellsOfAllEnds(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		claims := []Claim{claimOf("a"), claimOf("b"), claimOf("c")}
		for _, claim := range claims[:2] {
			d.must(d.client.HSet(t.Context(), d.key.Running("w"), claim.String(), "job").Err())
		}
		_, err := d.Ack(t.Context(), Ack{Worker: "w", Claims: claims})
		d.must(err)
		_, notices, err := d.ReadNotices(t.Context(), "0", -1)
		if err != nil || len(notices) != 1 || notices[0].Subject != NoticeFinished || !slices.Equal(ParseFinished(notices[0].Text), claims) {
			t.Errorf("%+v, %v; want one notice of %v", notices, err, claims)
		}
	})
}
