package notify_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// Half an hour of traffic at a tenth of the leak, to an iPhone and an Android phone of each
// user, while Google is down: Apple's devices get theirs in time, although what is left for
// Google's is attempted again and again, and takes slots of the leak.
func TestALongOutageDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		apns, fcm := openCrowd(t, "apns"), openCrowd(t, "fcm")
		all, err := notify.NewProviders(notify.Provider{Sender: apns.sender}, notify.Provider{Sender: fcm.sender})
		must(t, err)
		s := newSchool(t, all, notify.HandlerConfig{Shared: true}, queue.Policy{Tenant: []throttle.Rule{throttle.Leak(10, time.Second)}})
		fcm.host.Answer(func(notifytest.Received) *notifytest.Answer { return notifytest.Unavailable(0) })
		const messages, users = 1800, 600
		offered := make(map[string]time.Time)
		for n := range messages {
			title := fmt.Sprint("message ", n)
			offered[title] = time.Now()
			s.notify(fmt.Sprint("user-", n%users), notify.Message{Title: title, Targets: []notify.Target{
				of("apns", apns.target(n%users)), of("fcm", fcm.target(n%users)),
			}})
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second)
		var waits []time.Duration
		for _, r := range apns.host.Received() {
			waits = append(waits, r.At.Sub(offered[r.Title]))
		}
		slices.Sort(waits)
		if p99 := waits[len(waits)*99/100]; len(waits) != messages || p99 > time.Second {
			t.Errorf("%d of %d arrived at Apple's devices, p99 %v", len(waits), messages, p99)
		}
		fcm.host.Answer(nil)
		for begin := time.Now(); time.Since(begin) < 2*time.Hour && s.unfinished() > 0; {
			time.Sleep(time.Minute)
		}
		if st := s.stats(); st.Done != messages || delivered(fcm) != messages {
			t.Errorf("in the end %d arrived at Google's, %+v", delivered(fcm), st)
		}
	})
}
