package store

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A batch that was written by another connection, which waited for nobody, is on the replica when Durable returns. A batch that
// Redis does not know is told from it.
func TestBatchesOfOtherConnections(t *testing.T) {
	master := redistest.Start(t)
	replica := master.StartReplica(t)
	first, err := New(master.Client(t), "push")
	if err != nil {
		t.Fatal(err)
	}
	second, err := New(master.Client(t), "push")
	if err != nil {
		t.Fatal(err)
	}
	goOn := replica.Freeze()
	defer goOn()
	lane := Lane{Tenant: "t0", User: "u", Priority: envelope.Normal}
	o := Offer{Batch: "b", Keep: time.Minute, Tenants: []OfferTenant{{Name: "t0"}}, Jobs: []OfferJob{{Lane: lane, Body: []byte("x"), IDFor: IDMemory}}}
	if _, err := first.Offer(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	wait := func() ([]bool, error) {
		return second.Durable(t.Context(), []string{"b", "lost"}, time.Minute, Durability{Replicas: 1})
	}
	var notYet *NotDurableError
	if known, err := wait(); !errors.As(err, &notYet) || notYet.Replicas != 0 || !slices.Equal(known, []bool{true, false}) {
		t.Errorf("while the replica stands still: %v, %v", known, err)
	}
	goOn()
	redistest.Eventually(t, 20*time.Second, "the batch is where it has to be", func() bool {
		known, err := wait()
		if err != nil && !errors.Is(err, ErrNotDurable) || !slices.Equal(known, []bool{true, false}) {
			t.Fatalf("afterwards: %v, %v", known, err)
		}
		return err == nil
	})
	if n := replica.Client(t).LLen(t.Context(), NewKeys("push").Lane(lane)).Val(); n != 1 {
		t.Errorf("the replica has %d jobs, want 1", n)
	}
}
