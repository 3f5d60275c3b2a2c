package store

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A commit that was reset is like a new one: nothing of what it did before is in it.
func TestResetCommit(t *testing.T) {
	t.Parallel()
	s := &Store{key: NewKeys("q")}
	c := s.NewCommit()
	fill := func() {
		lane := Lane{Tenant: "t", User: "u", Priority: envelope.Normal}
		claim := Claim{Stamp: "0123456789abc", Lane: lane, Slot: 1, Spent: 1}
		fold := Folded{Tenant: "t", User: "u", Key: "k"}
		c.Take(lane, []Leaving{{"0123456789abc", "w", claim}})
		c.Claim("w", claim, "job")
		c.Lives("w")
		c.ClaimFolded("w", claim, fold)
		c.EndClaim("w", claim)
		c.Ack("w", []Claim{claim})
		c.Tell("w", "!job")
		c.PutFirst(lane, "entry", envelope.Place{Slot: 1, Stamp: "0000000000001"}, 5)
		c.Wake(lane, 7)
		c.Sooner(lane, 9)
		c.Fold(fold, "job")
		c.Mature("member", 1<<52)
		c.State("q", "text", 10)
		c.Drop(lane, "job", "expired", "", 1)
		c.Count("t", "started", 1)
		c.Read(lane, 3)
		c.ReadStates([]string{"q"})
		c.gather()
	}
	fill()
	filled := reflect.ValueOf(*c)
	for i := range filled.NumField() {
		if filled.Field(i).IsZero() {
			t.Fatalf("%s is not filled: the test says nothing of it", filled.Type().Field(i).Name)
		}
	}
	c.Reset()
	if c.Writes() || !c.Empty() {
		t.Error("it does something")
	}
	if got, want := all(c), all(s.NewCommit()); got != want {
		t.Errorf("it is\n%s\nwant\n%s", got, want)
	}
}

// all returns what a commit holds.
func all(c *Commit) string {
	rest := *c
	rest.s, rest.keys = nil, nil
	return fmt.Sprint(rest, c.keys.keys, c.keys.numbers)
}
