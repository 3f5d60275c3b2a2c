package main

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/inprocess"
	"github.com/waterclock/waterclock/notify"
)

// What reaches a device twice, too soon, or during a pause is found at the provider,
// whatever the queue believes.
func TestTheProvidersSeeWhatIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := inprocess.New()
		client := inprocess.NewClient(server)
		defer server.Close()
		defer client.Close()
		p, err := openProviders(client)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		s, err := newStory(client, p, schools(), 1)
		if err != nil {
			t.Fatal(err)
		}
		s.began = time.Now()
		p.begin(s.began)
		send := func(school, user string) {
			t.Helper()
			text, err := p.message(school, user, "push", "", s.began.Add(time.Second))
			if err != nil {
				t.Fatal(err)
			}
			m, err := notify.ParseMessage(text)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				p.senders[school].Send(t.Context(), m, m.Targets[0])
			}
		}
		send("birch", "parent-1")
		time.Sleep(quotaFrom)
		send("oak", "parent-1") // a 429
		time.Sleep(time.Second)
		send("oak", "parent-2") // during the pause
		send("cedar", "parent-1")
		broken := map[string]bool{}
		rulings := s.providerRulings()
		for _, r := range rulings {
			broken[r.limit] = len(r.broken) > 0
		}
		for _, limit := range []string{"no message twice on a device", "nothing during Retry-After", "nothing after its expiry"} {
			if !broken[limit] {
				t.Errorf("%s: not seen", limit)
			}
		}
		if err := printRulings(io.Discard, rulings); !errors.Is(err, errBroken) {
			t.Errorf("error %v, want %v", err, errBroken)
		}
	})
}
