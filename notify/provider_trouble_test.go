package notify_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// offerAll offers a message to each of so many devices, of a thousand users at most: the
// Redis of the tests looks at all its keys each time that the clock has moved.
func offerAll(t *testing.T, s *school, c crowd, devices int) {
	t.Helper()
	client := newClient(t, s.rdb, "push")
	var batch []queue.Job
	for i := range devices {
		job, err := notify.NewJob("school", fmt.Sprint("parent-", i%1000), notify.Message{Title: fmt.Sprint(i), Targets: []notify.Target{c.target(i)}})
		must(t, err)
		if batch = append(batch, job); len(batch) == 500 || i == devices-1 {
			_, err := client.Enqueue(t.Context(), batch...)
			must(t, err)
			batch = nil
		}
	}
}

// A campaign over a table of which so many tokens are dead ends when its leak says so, and
// the app is told of each dead token and of no other.
func TestCampaign(t *testing.T) {
	t.Parallel()
	for _, percent := range sample.Draw(t, []int{0, 20, 40, 90}, 0, 2) {
		t.Run(fmt.Sprint(percent), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { campaign(t, campaignSize{2000, 100}, percent) })
		})
	}
}

// The same over a table as large as those of real campaigns.
func TestLargeCampaign(t *testing.T) {
	sample.WholeOnly(t)
	t.Parallel()
	for _, percent := range []int{0, 20, 40, 90} {
		t.Run(fmt.Sprint(percent), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { campaign(t, campaignSize{100_000, 1000}, percent) })
		})
	}
}

type campaignSize struct{ devices, perSecond int }

func campaign(t *testing.T, size campaignSize, percent int) {
	devices := size.devices
	c := openCrowd(t, "apns")
	dead, want := make(map[string]bool), 0
	for i := range devices {
		if (trial{oneIn: 100}).bucket(i) < percent {
			dead[c.name(i)] = true
			want++
		}
	}
	c.host.Answer(func(r notifytest.Received) *notifytest.Answer {
		if dead[r.Device] {
			return notifytest.Reason(400, "BadDeviceToken")
		}
		return &notifytest.Answer{Delay: 30 * time.Millisecond}
	})
	var told atomic.Int64
	s := newSchool(t, c.sender, notify.HandlerConfig{Shared: true, Forget: func(_ context.Context, _ queue.Info, gone notify.Target, _ error) error {
		if told.Add(1); !dead[gone.Token] {
			t.Errorf("a good token is forgotten")
		}
		return nil
	}}, queue.Policy{Tenant: []throttle.Rule{throttle.Leak(size.perSecond, time.Second)}})
	offerAll(t, s, c, devices)
	// A twentieth more than the leak's time.
	time.Sleep(time.Duration(devices) * time.Second / time.Duration(size.perSecond) * 105 / 100)
	if st, missing := s.stats(), want-int(told.Load()); st.Done < int64(devices*99/100) || missing > devices/100 {
		t.Errorf("%d of %d tokens told, %+v", told.Load(), want, st)
	}
	if got := delivered(c); got != devices-want {
		t.Errorf("%d arrived, want %d", got, devices-want)
	}
	time.Sleep(10 * time.Minute)
	s.notify("last", notify.Message{Title: "last", Targets: []notify.Target{{Token: "0123456789abcdef"}}}) // proves those at the end
	for begin := time.Now(); time.Since(begin) < 2*time.Hour && s.unfinished() > 0; {
		time.Sleep(time.Minute)
	}
	if st := s.stats(); st.Done != int64(devices+1) || int(told.Load()) != want {
		t.Errorf("in the end: %d of %d tokens told, %+v", told.Load(), want, st)
	}
}

func delivered(c crowd) (n int) {
	for _, r := range c.host.Received() {
		if r.Status/100 == 2 {
			n++
		}
	}
	return n
}

// Through a relay that has lost its way and answers 404 to everything, whatever the
// provider and whether it worked before, no token is forgotten, no message is given up,
// and all arrive once it is mended.
func TestRelayThatHasLostItsWay(t *testing.T) {
	t.Parallel()
	const devices = 500
	type relay struct {
		provider string
		after    int // requests that it answers first
	}
	all := []relay{{"apns", 0}, {"apns", 300}, {"fcm", 0}, {"fcm", 300}, {"webpush", 0}, {"webpush", 300}}
	for _, r := range sample.Draw(t, all, 0, 2) {
		t.Run(fmt.Sprint(r.provider, " after ", r.after), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := openRelay(t)
				if r.provider != "webpush" {
					c = openCrowd(t, r.provider)
				}
				var n atomic.Int64
				c.host.Answer(func(notifytest.Received) *notifytest.Answer {
					if int(n.Add(1)) > r.after {
						return notifytest.HTML(404)
					}
					return nil
				})
				s := newSchool(t, c.sender, notify.HandlerConfig{Shared: true, Forget: func(context.Context, queue.Info, notify.Target, error) error {
					t.Error("a good token is forgotten")
					return nil
				}}, queue.Policy{Tenant: []throttle.Rule{throttle.Leak(100, time.Second)}})
				offerAll(t, s, c, devices)
				time.Sleep(30 * time.Minute)
				if st := s.stats(); st.Dead+st.Dropped != 0 || delivered(c) != r.after || !strings.Contains(s.logged(), "level=ERROR") {
					t.Errorf("%d arrived, %+v", delivered(c), st)
				}
				c.host.Answer(nil)
				for begin := time.Now(); time.Since(begin) < 2*time.Hour && s.unfinished() > 0; {
					time.Sleep(time.Minute)
				}
				if st := s.stats(); st.Done != devices || delivered(c) != devices {
					t.Errorf("mended: %d arrived, %+v", delivered(c), st)
				}
			})
		})
	}
}

// A provider in trouble that calls everybody unregistered costs a hundred tokens, and not all.
func TestEverybodyIsGone(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	const devices = 500
	for provider, answer := range map[string]*notifytest.Answer{
		"fcm": notifytest.Unregistered(), "apns": notifytest.Reason(410, "Unregistered"), "webpush": {Status: 410},
	} {
		t.Run(provider, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := openCrowd(t, provider)
				var told atomic.Int64
				s := newSchool(t, c.sender, notify.HandlerConfig{Shared: true, Forget: func(context.Context, queue.Info, notify.Target, error) error {
					told.Add(1)
					return nil
				}}, queue.Policy{Tenant: []throttle.Rule{throttle.Leak(100, time.Second)}})
				c.host.Answer(func(notifytest.Received) *notifytest.Answer { return answer })
				offerAll(t, s, c, devices)
				time.Sleep(5 * time.Minute)
				if n := told.Load(); n != 100 || !strings.Contains(s.logged(), "level=ERROR") {
					t.Errorf("%d tokens are forgotten", n)
				}
				c.host.Answer(nil)
				for begin := time.Now(); time.Since(begin) < time.Hour && s.unfinished() > 0; {
					time.Sleep(time.Minute)
				}
				if st := s.stats(); told.Load() != 100 || delivered(c) != devices-100 || st.Done != devices {
					t.Errorf("afterwards %d arrived, %d tokens are forgotten; %+v", delivered(c), told.Load(), st)
				}
			})
		})
	}
}

// An operator who knows that a table is old says so, and is believed.
func TestTrustAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := openCrowd(t, "apns")
		c.host.Answer(func(notifytest.Received) *notifytest.Answer { return notifytest.Reason(400, "BadDeviceToken") })
		var told atomic.Int64
		s := newSchool(t, c.sender, notify.HandlerConfig{TrustAnswers: true, Forget: func(context.Context, queue.Info, notify.Target, error) error {
			told.Add(1)
			return nil
		}}, queue.Policy{})
		offerAll(t, s, c, 400)
		time.Sleep(time.Minute)
		if st := s.stats(); told.Load() != 400 || st.Done != 400 || strings.Contains(s.logged(), "suspended") {
			t.Errorf("%d told, %+v\n%s", told.Load(), st, s.logged())
		}
	})
}

// Messages to devices of another app are dead, with the reason; their tokens are kept.
func TestTokensOfAnotherApp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := openCrowd(t, "apns")
		c.host.Answer(func(r notifytest.Received) *notifytest.Answer {
			if strings.HasSuffix(r.Device, "5") {
				return notifytest.Reason(400, "DeviceTokenNotForTopic")
			}
			return nil
		})
		s := newSchool(t, c.sender, notify.HandlerConfig{Shared: true, Forget: func(context.Context, queue.Info, notify.Target, error) error {
			t.Error("a token of another app is forgotten")
			return nil
		}}, queue.Policy{Tenant: []throttle.Rule{throttle.Leak(20, time.Second)}})
		offerAll(t, s, c, 320)
		time.Sleep(20 * time.Second)
		dead, err := s.inspector().Dead(t.Context(), "", 100)
		must(t, err)
		if st := s.stats(); st.Done != 300 || len(dead) != 20 || !strings.Contains(dead[0].Error, "DeviceTokenNotForTopic") {
			t.Errorf("%+v; dead %+v", st, dead)
		}
	})
}

// An endpoint that takes requests and never answers holds its share of places: another
// tenant's messages to the same host are not late.
func TestHangingEndpoint(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := openCrowd(t, "webhook")
		s := newSchool(t, c.sender, notify.HandlerConfig{}, queue.Policy{Tenant: []throttle.Rule{throttle.Leak(50, time.Second)}})
		c.host.Answer(func(r notifytest.Received) *notifytest.Answer {
			if r.Title == "slow" {
				return &notifytest.Answer{Hang: true}
			}
			return &notifytest.Answer{Delay: 20 * time.Millisecond}
		})
		offer := func(tenant string, n, endpoint int) {
			client := newClient(t, s.rdb, "push")
			for i := range n {
				job, err := notify.NewJob(tenant, fmt.Sprint("u", i), notify.Message{Title: tenant, Targets: []notify.Target{c.target(endpoint)}})
				must(t, err)
				_, err = client.Enqueue(t.Context(), job)
				must(t, err)
			}
		}
		offer("slow", 2000, 0)
		time.Sleep(10 * time.Second)
		begin := time.Now()
		offer("quick", 500, 1)
		time.Sleep(10*time.Second + 500*time.Millisecond)
		quick, slow := 0, 0
		for _, r := range c.host.Received() {
			switch {
			case r.Title == "slow":
				slow++
			case !r.At.Before(begin):
				quick++
			}
		}
		if quick != 500 {
			t.Errorf("%d of 500 messages arrived within the 10 s that they take alone", quick)
		}
		if slow > 50 {
			t.Errorf("%d requests to an endpoint that never answers", slow)
		}
	})
}

// A 503 now and then costs the message that met it a retry, and nobody else anything.
func TestLone503(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := openCrowd(t, "fcm")
		var n atomic.Int64
		c.host.Answer(func(notifytest.Received) *notifytest.Answer {
			if n.Add(1)%1000 == 0 {
				return notifytest.FCMError(503, "UNAVAILABLE")
			}
			return &notifytest.Answer{Delay: 50 * time.Millisecond}
		})
		s := newSchool(t, c.sender, notify.HandlerConfig{Shared: true}, queue.Policy{Tenant: []throttle.Rule{throttle.Leak(200, time.Second)}})
		offerAll(t, s, c, 4000)
		time.Sleep(20*time.Second + time.Second)
		if st := s.stats(); st.Done < 3995 || st.Failed > 4 {
			t.Errorf("after the 20 s of work: %+v", st)
		}
		time.Sleep(time.Minute)
		if st := s.stats(); st.Done != 4000 {
			t.Errorf("in the end: %+v", st)
		}
	})
}

// A worker that cannot reach its provider burns no attempts, and sends all when it can.
func TestNoWayOut(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := notifytest.NewAPNs(notifytest.Options{})
		must(t, err)
		var out atomic.Bool
		reach := wire(&p.Host)
		reach.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if out.Load() {
				return p.Dial(ctx, network, address)
			}
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}
		sender, err := notify.NewAPNs(notify.APNsConfig{Key: p.Key, KeyID: p.KeyID, TeamID: p.TeamID, Topic: p.Topic, Wire: reach})
		must(t, err)
		closeLater(t, &p.Host, sender)
		s := newSchool(t, sender, notify.HandlerConfig{Shared: true}, queue.Policy{Tenant: []throttle.Rule{throttle.Leak(20, time.Second)}})
		for i := range 60 {
			s.notify(fmt.Sprint("parent-", i), notify.Message{Title: "a", Targets: []notify.Target{{Token: fmt.Sprintf("%016x", i+1)}}})
		}
		time.Sleep(2 * time.Hour)
		st := s.stats()
		if st.Dead != 0 || st.Failed > 20 || st.Waiting+st.Later != 60 {
			t.Errorf("after two hours: %+v; want at most the attempts that found out", st)
		}
		// It touches others' messages no longer than it has to.
		if strings.Contains(s.logged(), "queue paused") {
			t.Error("one worker without a network pauses the queue of all")
		}
		out.Store(true)
		time.Sleep(time.Hour)
		if st := s.stats(); st.Done != 60 || len(p.Received()) != 60 {
			t.Errorf("%d requests, %+v", len(p.Received()), st)
		}
	})
}
