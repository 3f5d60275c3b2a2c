package runner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A job that a leader has lost, and whose handler ends nevertheless, keeps its payload: it waits
// to run again.
func TestALostJobKeepsItsPayload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		var runs []string
		taken := ""
		s.handler = func(_ string, a Attempt) Outcome {
			s.mu.Lock()
			runs = append(runs, a.Job.Payload)
			first := len(runs) == 1
			s.mu.Unlock()
			if first { // another worker reaps its claim
				for _, job := range s.client.HGetAll(t.Context(), "wc:{q}:running:w").Val() {
					taken = job
				}
				s.client.Del(t.Context(), "wc:{q}:running:w")
			}
			return Outcome{}
		}
		w := s.join("w")
		time.Sleep(2 * time.Second)
		st, _ := store.New(s.client, "q")
		e := envelope.Envelope{Cost: 1, MaxAttempts: 3, Priority: envelope.Normal, Type: "x", Spilled: "name"}
		o := store.Offer{Batch: "b", Keep: time.Minute, Policies: 1, Tenants: []store.OfferTenant{{Name: "t"}}, Jobs: []store.OfferJob{
			{Lane: envelope.Lane{Tenant: "t", User: "u", Priority: 1}, Body: e.Body(), Spilled: "name", Payload: []byte("large")},
		}}
		if _, err := st.Offer(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		goOn := w.wire.hold()
		s.offer("u", 1) // the leader is told of a job behind the lost one
		s.client.LPush(t.Context(), "wc:{q}:lane:t:u", taken)
		goOn()
		time.Sleep(time.Minute)
		s.end()
		large := 0
		for _, payload := range runs {
			if payload == "large" {
				large++
			}
		}
		if large != 2 {
			t.Errorf("ran as %q", runs)
		}
	})
}
