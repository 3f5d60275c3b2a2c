package notify_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// withQuota is a crowd's sender with a quota.
func withQuota(t *testing.T, c crowd, quota throttle.Rule) notify.Sender {
	t.Helper()
	all, err := notify.NewProviders(notify.Provider{Sender: c.sender, Quota: quota})
	must(t, err)
	return all
}

// A quota counts requests: the messages of a leak, each to three devices, leave no faster
// than the provider allows. All arrive, once, and no attempt counts.
func TestQuotaCountsDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const users, devices, perSecond = 200, 3, 30
		c := openCrowd(t, "fcm")
		quota := throttle.Leak(perSecond, time.Second)
		c.host.Answer(func(notifytest.Received) *notifytest.Answer { return &notifytest.Answer{Delay: 50 * time.Millisecond} })
		s := newSchool(t, withQuota(t, c, quota), notify.HandlerConfig{Shared: true}, queue.Policy{
			Tenant: []throttle.Rule{throttle.Leak(20, time.Second)}, User: []throttle.Rule{throttle.Window(1, time.Hour)},
		})
		begin := time.Now()
		for u := range users {
			var targets []notify.Target
			for d := range devices {
				targets = append(targets, c.target(u*devices+d))
			}
			s.notify(fmt.Sprint("user-", u), notify.Message{Title: "a", Targets: targets})
		}
		for s.unfinished() > 0 && time.Since(begin) < time.Hour {
			time.Sleep(time.Second)
			if n := s.stats().Running; n > 2*perSecond/devices {
				t.Fatalf("%d messages hold places while they wait for the quota", n)
			}
		}
		took, alone := time.Since(begin), users*devices*time.Second/perSecond
		if took > alone*12/10 || took < alone-time.Second {
			t.Errorf("it took %v; the quota alone takes %v", took, alone)
		}
		got := make(map[string]int)
		var starts []throttle.Event
		for _, r := range c.host.Received() {
			got[r.Device]++
			starts = append(starts, throttle.Event{At: r.At})
		}
		if broken := throttle.Verify(starts, []throttle.Rule{throttle.Window(perSecond+devices, time.Second)}); len(broken) > 0 {
			t.Errorf("%d requests beyond the quota, the first %+v", len(broken), broken[0])
		}
		if st := s.stats(); len(got) != users*devices || len(starts) != users*devices || st.Done != users || st.Failed != 0 {
			t.Errorf("%d requests to %d devices, %+v", len(starts), len(got), st)
		}
	})
}

// Several workers share a quota, and one provider's that is used up delays no other.
func TestQuotaIsOneProviders(t *testing.T) {
	redistest.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		const users = 100
		apns, fcm := openCrowd(t, "apns"), openCrowd(t, "fcm")
		all, err := notify.NewProviders(notify.Provider{Sender: apns.sender}, notify.Provider{Sender: fcm.sender, Quota: throttle.Leak(1, time.Second)})
		must(t, err)
		s := newSchool(t, all, notify.HandlerConfig{Shared: true}, queue.Policy{Tenant: []throttle.Rule{throttle.Leak(20, time.Second)}})
		for u := range users {
			s.notify(fmt.Sprint("user-", u), notify.Message{Title: "a", Targets: []notify.Target{of("apns", apns.target(u)), of("fcm", fcm.target(u))}})
		}
		time.Sleep(users*time.Second/20 + 500*time.Millisecond)
		if n := delivered(apns); n != users {
			t.Errorf("%d of %d iPhones got it in time", n, users)
		}
		time.Sleep(20 * time.Minute)
		if st := s.stats(); st.Done != users || st.Failed != 0 || delivered(fcm) != users || delivered(apns) != users {
			t.Errorf("%d and %d arrived, %+v", delivered(apns), delivered(fcm), st)
		}
	})
}

func TestBadQuota(t *testing.T) {
	var r recorder
	nameless, err := notify.NewProviders(notify.Provider{Sender: &r, Quota: throttle.Leak(1, time.Second)})
	must(t, err)
	if _, err := notify.NewHandler(nameless, notify.HandlerConfig{Redis: redistest.Mini(t)}); err == nil || !strings.Contains(err.Error(), "needs a name") {
		t.Errorf("without a name: %v", err)
	}
	for want, tt := range map[string]struct {
		quota throttle.Rule
		redis bool
	}{
		"want a rule that defers":           {throttle.Leak(1, time.Second).OrDrop(), true},
		`quota "leak 1/s": want a rule`:     {throttle.Leak(1, time.Second).AsShadow(), true},
		"a quota needs HandlerConfig.Redis": {throttle.Leak(1, time.Second), false},
	} {
		all, err := notify.NewProviders(notify.Provider{Name: "sms", Sender: &r, Quota: tt.quota})
		must(t, err)
		var cfg notify.HandlerConfig
		if tt.redis {
			cfg.Redis = redistest.Mini(t)
		}
		if _, err := notify.NewHandler(all, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
