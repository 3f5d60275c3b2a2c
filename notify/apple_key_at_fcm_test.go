package notify_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// While FCM's key for Apple's devices is not valid, their messages wait, Android's arrive in
// time, and somebody is told, a few times. All arrive once the key is mended.
func TestKeyOfAnotherParty(t *testing.T) {
	t.Parallel()
	const short, long = 10 * time.Second, 20 * time.Minute
	type key struct {
		invalid time.Duration
		oneIn   int // device is an iPhone
	}
	for _, k := range sample.Draw(t, []key{{short, 2}, {short, 1}, {long, 2}, {long, 1}}, 0, 1) {
		t.Run(fmt.Sprint(k.invalid, " 1 in ", k.oneIn), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const devices, perSecond = 400, 50
				c := openCrowd(t, "fcm")
				s := newSchool(t, c.sender, notify.HandlerConfig{Shared: true}, queue.Policy{Tenant: []throttle.Rule{throttle.Leak(perSecond, time.Second)}})
				var late time.Duration
				c.host.Answer(func(r notifytest.Received) *notifytest.Answer {
					apple := strings.HasPrefix(r.Device, "iphone")
					if apple && r.At.Sub(s.begin) < k.invalid {
						return notifytest.FCMError(401, "THIRD_PARTY_AUTH_ERROR")
					}
					if !apple {
						late = max(late, r.At.Sub(s.begin))
					}
					return nil
				})
				for n := range devices {
					to := notify.Target{Token: fmt.Sprint("android-", n)}
					if n%k.oneIn == 0 {
						to.Token = fmt.Sprint("iphone-", n)
					}
					s.notify(fmt.Sprint("user-", n), notify.Message{Title: fmt.Sprint(n), Targets: []notify.Target{to}})
				}
				time.Sleep(k.invalid)
				for begin := time.Now(); time.Since(begin) < 3*time.Hour && s.unfinished() > 0; {
					time.Sleep(time.Minute)
				}
				if st := s.stats(); delivered(c) != devices || st.Done != devices {
					t.Errorf("%d arrived; %+v", delivered(c), st)
				}
				// Retries take slots, but a minute later.
				if late > devices*time.Second/perSecond+time.Second {
					t.Errorf("the last to an Android phone after %v", late)
				}
				if n := strings.Count(s.logged(), "refuses our configuration"); n == 0 || n > 1+int(k.invalid/(10*time.Minute)) {
					t.Errorf("%d alarms", n)
				}
			})
		})
	}
}
