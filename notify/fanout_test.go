package notify_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
)

// A message takes one place of the worker, and so one of a host's share, however many of its
// endpoints or devices are there: they all get it in the first attempt.
func TestOneMessageToManyOfOneHost(t *testing.T) {
	t.Parallel()
	for provider, most := range map[string]time.Duration{"webhook": 2 * time.Second, "webpush": time.Second, "fcm": time.Second} {
		for _, n := range []int{26, 60, 100} {
			t.Run(fmt.Sprint(provider, " ", n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, other := openCrowd(t, provider), openCrowd(t, "apns")
					all, err := notify.NewProviders(notify.Provider{Sender: c.sender}, notify.Provider{Sender: other.sender})
					must(t, err)
					c.host.Answer(func(notifytest.Received) *notifytest.Answer { return &notifytest.Answer{Delay: 100 * time.Millisecond} })
					s := newSchool(t, all, notify.HandlerConfig{Shared: true}, queue.Policy{})
					var targets []notify.Target
					for i := range n {
						targets = append(targets, of(provider, c.target(i)))
					}
					s.notify("u", notify.Message{Title: "a", Targets: targets})
					time.Sleep(2 * time.Minute)
					var last time.Duration
					for _, r := range c.host.Received() {
						last = max(last, r.At.Sub(s.begin))
					}
					if st := s.stats(); delivered(c) != n || last > most || st.Failed != 0 || st.Started != 1 {
						t.Errorf("%d arrived, the last after %v; %+v", delivered(c), last, st)
					}
				})
			})
		}
	}
}
