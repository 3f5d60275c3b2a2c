package notify_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
)

// Subscriptions that answer 403, each of an origin of its own or all of one, do not delay the
// messages to others: an attempt that waits to find out whether to believe them takes a place.
func TestForbiddenSubscriptions(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	const forbidden, messages = 300, 300
	for name, origins := range map[string]int{"one origin": 1, "an origin each": forbidden} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := openRelay(t) // so that all origins are reached
				s := newSchool(t, c.sender, notify.HandlerConfig{Shared: true}, queue.Policy{})
				c.host.Answer(func(r notifytest.Received) *notifytest.Answer {
					if r.Title == "forbidden" {
						return &notifytest.Answer{Status: 403}
					}
					return &notifytest.Answer{Delay: 30 * time.Millisecond}
				})
				for n := range forbidden {
					to := c.target(n)
					_, path, _ := strings.Cut(strings.TrimPrefix(to.Token, "https://"), "/")
					to.Token = fmt.Sprintf("https://origin-%d.example/%s", n%origins, path)
					s.notify(fmt.Sprint("forbidden ", n), notify.Message{Title: "forbidden", Targets: []notify.Target{to}})
				}
				offered := make(map[string]time.Time)
				for n := range messages {
					title := fmt.Sprint(n)
					offered[title] = time.Now()
					s.notify(fmt.Sprint("user ", n), notify.Message{Title: title, Targets: []notify.Target{c.target(1000 + n%50)}})
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(time.Minute)
				var waits []time.Duration
				for _, r := range c.host.Received() {
					if at, ok := offered[r.Title]; ok && r.Status/100 == 2 {
						waits = append(waits, r.At.Sub(at))
					}
				}
				slices.Sort(waits)
				if len(waits) != messages || waits[messages-1] > 200*time.Millisecond {
					t.Errorf("%d arrived, median %v p99 %v the last after %v", len(waits), waits[messages/2], waits[messages*99/100], waits[messages-1])
				}
			})
		})
	}
}
