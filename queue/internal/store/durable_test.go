package store

import (
	"errors"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A batch that had come over another connection, to whose reply nobody waited for a replica, is on the replica when the
// offer that repeats it returns.
func TestARepeatedBatchIsDurable(t *testing.T) {
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
	receipts, err := first.Offer(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	o.Durable = Durability{Replicas: 1}
	var notYet *NotDurableError
	if _, err := second.Offer(t.Context(), o); !errors.As(err, &notYet) || notYet.Replicas != 0 {
		t.Errorf("while the replica stands still: %v", err)
	}
	goOn()
	var again OfferReply
	redistest.Eventually(t, 20*time.Second, "the batch is where it has to be", func() bool {
		again, err = second.Offer(t.Context(), o)
		return !errors.Is(err, ErrNotDurable)
	})
	if err != nil || again.Receipts[0] != receipts.Receipts[0] {
		t.Errorf("afterwards: %+v, %v; want %+v", again.Receipts, err, receipts.Receipts)
	}
	if n := replica.Client(t).LLen(t.Context(), NewKeys("push").Lane(lane)).Val(); n != 1 {
		t.Errorf("the replica has %d jobs, want 1", n)
	}
}
