package notify_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// Five minutes of traffic, or half an hour, at a tenth of the leak, to an iPhone and an Android phone of each
// user, while Google is down: Apple's devices get theirs in time. What is left for Google's
// is attempted again and again, and delays a message by the one slot that it may have taken
// right before.
func TestALongOutageDelaysNoOther(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		apns, fcm := openCrowd(t, "apns"), openCrowd(t, "fcm")
		all, err := notify.NewProviders(notify.Provider{Sender: apns.sender}, notify.Provider{Sender: fcm.sender})
		must(t, err)
		s := newSchool(t, all, notify.HandlerConfig{Shared: true}, queue.Policy{Tenant: []throttle.Rule{throttle.Leak(10, time.Second)}})
		fcm.host.Answer(func(notifytest.Received) *notifytest.Answer { return notifytest.Unavailable(0) })
		const users = 600
		messages := sample.Size(users/2, users/2, 3*users)
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
		// A slot is taken up to 20 ms ahead.
		if worst := slices.Max(waits); len(waits) != messages || worst > time.Second/10+20*time.Millisecond {
			t.Errorf("%d of %d arrived at Apple's devices, within %v", len(waits), messages, worst)
		}
		fcm.host.Answer(nil)
		for begin := time.Now(); time.Since(begin) < 2*time.Hour && s.unfinished() > 0; {
			time.Sleep(time.Minute)
		}
		if st := s.stats(); st.Done != int64(messages) || delivered(fcm) != messages {
			t.Errorf("in the end %d arrived at Google's, %+v", delivered(fcm), st)
		}
	})
}

// What is left of a message comes in its turn if a device failed alone, and after all other
// messages if its provider is in trouble.
func TestALoneFailureKeepsItsTurn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		failing int  // of Google's devices, in a row, once each
		nobody  bool // they are all that the first user has
		users   int  // whose devices they are
		after   bool
	}{
		"one alone": {failing: 1, users: 1}, "two in a row": {failing: 2, users: 2, after: true}, "nobody has it": {failing: 2, nobody: true, users: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const users, perSecond = 60, 2
				apns, fcm := openCrowd(t, "apns"), openCrowd(t, "fcm")
				all, err := notify.NewProviders(notify.Provider{Sender: apns.sender}, notify.Provider{Sender: fcm.sender})
				must(t, err)
				s := newSchool(t, all, notify.HandlerConfig{Shared: true}, queue.Policy{Tenant: []throttle.Rule{throttle.Leak(perSecond, time.Second)}})
				var failed atomic.Int64
				fcm.host.Answer(func(notifytest.Received) *notifytest.Answer {
					if failed.Add(1) <= int64(test.failing) {
						return notifytest.Unavailable(0)
					}
					return nil
				})
				for u := range 2 * users { // half of them come later, when the retry waits already
					if u == users {
						time.Sleep(20 * time.Second)
					}
					targets := []notify.Target{of("apns", apns.target(u)), of("fcm", fcm.target(u))}
					if test.nobody && u == 0 {
						targets[0] = of("fcm", fcm.target(1000))
					}
					s.notify(fmt.Sprint("user-", u), notify.Message{Title: fmt.Sprint(u), Targets: targets})
					time.Sleep(time.Millisecond)
				}
				time.Sleep(2 * time.Minute)
				arrived := make(map[string]time.Duration)
				for _, r := range fcm.host.Received() {
					if r.Status/100 == 2 {
						arrived[r.Title] = r.At.Sub(s.begin)
					}
				}
				begun := users * time.Second / perSecond
				if test.after {
					begun *= 2
				}
				for u := range test.users {
					if at := arrived[fmt.Sprint(u)]; at == 0 || at < begun || at > begun+2*time.Second {
						t.Errorf("the device that failed got its message after %v, want %v", at, begun)
					}
				}
				if delivered(apns)+delivered(fcm) != 4*users || len(arrived) != 2*users {
					t.Errorf("%d and %d arrived, want %d", delivered(apns), delivered(fcm), 4*users)
				}
			})
		})
	}
}

// Devices that failed alone, each between others that got their messages, are no evidence
// when they fail again in a row.
func TestRepeatedAttemptsAreNoEvidence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pairs = 30
		c := openCrowd(t, "fcm")
		s := newSchool(t, c.sender, notify.HandlerConfig{Shared: true}, queue.Policy{Tenant: []throttle.Rule{throttle.Leak(100, time.Second)}})
		bad := make(map[string]bool)
		for i := range pairs {
			bad[c.name(2*i)] = true
		}
		c.host.Answer(func(r notifytest.Received) *notifytest.Answer {
			if bad[r.Device] {
				return notifytest.HTML(500)
			}
			return nil
		})
		offerAll(t, s, c, 2*pairs)
		time.Sleep(5 * time.Minute) // only those that failed are attempted
		s.notify("last", notify.Message{Title: "last", Targets: []notify.Target{c.target(2*pairs + 1)}})
		time.Sleep(time.Second)
		inTime := slices.ContainsFunc(c.host.Received(), func(r notifytest.Received) bool { return r.Title == "last" })
		if !inTime || delivered(c) != pairs+1 || strings.Contains(s.logged(), "suspended") {
			t.Errorf("%d delivered, the last message within a second: %v\n%s", delivered(c), inTime, s.logged())
		}
	})
}
