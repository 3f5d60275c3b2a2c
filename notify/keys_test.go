package notify_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// byKeys are limits by name under which messages wait for their own route, endpoint or device.
func byKeys() map[string]queue.Limit {
	return map[string]queue.Limit{
		"route":    {Key: []string{"keys.route"}},
		"endpoint": {Key: []string{"keys.endpoint"}, Concurrency: queue.Concurrency{Jobs: 10}},
		"device":   {Key: []string{"keys.device"}},
	}
}

// lateness is how late messages came to a host after their offer: how many came, and the 99th percentile.
func lateness(h *notifytest.Host, offered map[string]time.Time) (n int, p99 time.Duration) {
	var waits []time.Duration
	for _, r := range h.Received() {
		if at, asked := offered[r.Title]; asked && r.Status/100 == 2 {
			waits = append(waits, r.At.Sub(at))
		}
	}
	slices.Sort(waits)
	if n = len(waits); n > 0 {
		p99 = waits[n*99/100]
	}
	return n, p99
}

// A job for each device, while Google is down: the same users' iPhones get theirs as on a calm day.
func TestAnotherProviderIsDown(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	const messages, users = 1800, 60
	arrive := func(down bool) (n int, p99 time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			apns, fcm := openCrowd(t, "apns"), openCrowd(t, "fcm")
			all, err := notify.NewProviders(notify.Provider{Sender: apns.sender}, notify.Provider{Sender: fcm.sender})
			must(t, err)
			policy := queue.Policy{Tenant: []throttle.Rule{throttle.Leak(4, time.Second)}, User: []throttle.Rule{throttle.Window(10, time.Minute)}}
			s := newLimitedSchool(t, redistest.Mini(t), all, notify.HandlerConfig{Shared: true}, policy, byKeys())
			fcm.host.Answer(func(notifytest.Received) *notifytest.Answer {
				if down {
					return notifytest.Unavailable(0)
				}
				return nil
			})
			offered := make(map[string]time.Time)
			for i := range messages {
				title, user := fmt.Sprint(i), fmt.Sprint("user-", i%users)
				offered[title] = time.Now()
				s.notify(user, notify.Message{Title: title, Targets: []notify.Target{of("fcm", fcm.target(i%users))}})
				s.notify(user, notify.Message{Title: title, Targets: []notify.Target{of("apns", apns.target(i%users))}})
				time.Sleep(time.Second)
			}
			time.Sleep(2 * time.Second)
			n, p99 = lateness(apns.host, offered)
			down = false
			for begin := time.Now(); time.Since(begin) < 2*time.Hour && s.unfinished() > 0; {
				time.Sleep(time.Minute)
			}
			if got := delivered(fcm); got != messages {
				t.Errorf("in the end %d of %d are at Google's devices; %+v", got, messages, s.stats())
			}
		})
		return n, p99
	}
	_, calm := arrive(false)
	n, p99 := arrive(true)
	t.Logf("%d of %d within %v; calm %v", n, messages, p99, calm)
	if n != messages || p99 > calm*12/10 {
		t.Errorf("%d of %d got theirs, p99 %v; on a calm day %v", n, messages, p99, calm)
	}
}

// One of a tenant's ten endpoints does not answer: the others do not notice.
func TestAnotherEndpointHangs(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	const endpoints = 10
	rounds := sample.Size(30, 30, 300)
	arrive := func(hangs bool) (n int, p99 time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			c := openCrowd(t, "webhook")
			policy := queue.Policy{Tenant: []throttle.Rule{throttle.Leak(10, time.Second)}}
			s := newLimitedSchool(t, redistest.Mini(t), c.sender, notify.HandlerConfig{Shared: true}, policy, byKeys())
			c.host.Answer(func(r notifytest.Received) *notifytest.Answer {
				return &notifytest.Answer{Hang: hangs && r.Device == c.name(0), Delay: 20 * time.Millisecond}
			})
			offered := make(map[string]time.Time)
			for i := range rounds {
				for e := range endpoints {
					title := fmt.Sprint(i, " to ", e)
					if e > 0 {
						offered[title] = time.Now()
					}
					s.notify("shop", notify.Message{Title: title, Targets: []notify.Target{of("webhook", c.target(e))}})
				}
				time.Sleep(2 * time.Second)
			}
			time.Sleep(2 * time.Second)
			n, p99 = lateness(c.host, offered)
		})
		return n, p99
	}
	_, calm := arrive(false)
	n, p99 := arrive(true)
	t.Logf("%d of %d within %v; calm %v", n, rounds*(endpoints-1), p99, calm)
	if n != rounds*(endpoints-1) || p99 > calm*12/10 {
		t.Errorf("%d of %d arrived, p99 %v; on a calm day %v", n, rounds*(endpoints-1), p99, calm)
	}
}

// Apple refuses one of two apps, of which a campaign is under way: the messages of the other one do not notice.
func TestAnotherTopicIsRefused(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	const campaign = 600
	messages := sample.Size(300, 300, 900)
	arrive := func(refused bool) (n int, p99 time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			apple, err := notifytest.NewAPNs(notifytest.Options{})
			must(t, err)
			const other = "com.example.other"
			apple.Topics = []string{other}
			sender, err := notify.NewAPNs(notify.APNsConfig{
				Key: apple.Key, KeyID: apple.KeyID, TeamID: apple.TeamID, Topic: apple.Topic, Topics: apple.Topics, Wire: wire(&apple.Host),
			})
			must(t, err)
			closeLater(t, &apple.Host, sender)
			policy := queue.Policy{Tenant: []throttle.Rule{throttle.Leak(100, time.Second)}}
			s := newLimitedSchool(t, redistest.Mini(t), sender, notify.HandlerConfig{Shared: true}, policy, byKeys())
			apple.Answer(func(r notifytest.Received) *notifytest.Answer {
				if refused && r.Topic == other {
					return notifytest.Reason(400, "TopicDisallowed")
				}
				return nil
			})
			to := func(app string, n int) []notify.Target {
				return []notify.Target{{Provider: "apns", App: app, Token: fmt.Sprintf("%064x", n+1)}}
			}
			for n := range campaign {
				s.notify(fmt.Sprint("fan-", n), notify.Message{Title: "campaign", Targets: to(other, 10_000+n)})
			}
			offered := make(map[string]time.Time)
			for n := range messages {
				title := fmt.Sprint(n)
				offered[title] = time.Now()
				s.notify(fmt.Sprint("user-", n), notify.Message{Title: title, Targets: to("", n)})
				time.Sleep(time.Second)
			}
			n, p99 = lateness(&apple.Host, offered)
		})
		return n, p99
	}
	_, calm := arrive(false)
	n, p99 := arrive(true)
	t.Logf("%d of %d within %v; calm %v", n, messages, p99, calm)
	if n != messages || p99 > calm*12/10+10*time.Millisecond {
		t.Errorf("%d of %d arrived, p99 %v; on a calm day %v", n, messages, p99, calm)
	}
}

// A device that asks for a year holds back no other device of the user.
func TestAnotherDeviceWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := openCrowd(t, "webpush")
		s := newLimitedSchool(t, redistest.Mini(t), c.sender, notify.HandlerConfig{Shared: true}, queue.Policy{}, byKeys())
		c.host.Answer(func(r notifytest.Received) *notifytest.Answer {
			if r.Device == c.name(0) {
				return &notifytest.Answer{Status: 429, RetryAfter: "31536000"}
			}
			return nil
		})
		offered := make(map[string]time.Time)
		for i := range 100 {
			title := fmt.Sprint(i)
			offered[title] = time.Now()
			s.notify("teacher", notify.Message{Title: title, Targets: []notify.Target{c.target(i % 2)}})
			time.Sleep(time.Second)
		}
		if n, p99 := lateness(c.host, offered); n != 50 || p99 > 100*time.Millisecond {
			t.Errorf("%d of 50 arrived at the other browser, p99 %v", n, p99)
		}
		if n := len(c.host.Received()); n > 55 {
			t.Errorf("%d requests", n)
		}
	})
}

// What limits count of a message is where all of its targets go.
func TestKeysOfAJob(t *testing.T) {
	hook := notify.Target{Token: "https://a.example/hook?secret", Secret: "whsec_secret"}
	browser := notify.Target{Token: "https://push.example/secret", P256dh: "p", Auth: "a"}
	for name, test := range map[string]struct {
		targets []notify.Target
		keys    string // their names, and values without a fingerprint
		costs   map[string]int
	}{
		"nobody":                  {nil, "", nil},
		"a token of anybody":      {[]notify.Target{{Token: "secret"}}, "device=*", nil},
		"a phone":                 {[]notify.Target{{Provider: "fcm", Token: "secret"}}, "device=* provider=fcm route=fcm", map[string]int{"fcm": 1}},
		"of an app":               {[]notify.Target{{Provider: "apns", App: "a", Token: "secret"}}, "device=* provider=apns route=apns/a", map[string]int{"apns": 1}},
		"a browser":               {[]notify.Target{browser}, "device=* provider=webpush route=webpush/*", map[string]int{"webpush": 1}},
		"an endpoint":             {[]notify.Target{hook}, "endpoint=* provider=webhook route=webhook/*", map[string]int{"webhook": 1}},
		"two phones":              {[]notify.Target{{Provider: "fcm", Token: "secret"}, {Provider: "fcm", Token: "secret2"}, {Provider: "fcm", Token: "secret"}}, "provider=fcm route=fcm", map[string]int{"fcm": 2}},
		"a phone and an endpoint": {[]notify.Target{{Provider: "fcm", Token: "secret"}, hook}, "", map[string]int{"fcm": 1, "webhook": 1}},
		"a name that is no unit":  {[]notify.Target{{Provider: "My SMS", Token: "secret"}}, "device=* provider=My SMS route=My SMS", nil},
		"an app with a long name": {[]notify.Target{{Provider: "fcm", App: strings.Repeat("a", 257), Token: "secret"}}, "device=* provider=fcm", map[string]int{"fcm": 1}},
	} {
		job, err := notify.NewJob("school", "teacher", notify.Message{Title: "a", Targets: test.targets})
		must(t, err)
		must(t, job.Validate())
		var keys []string
		for name, value := range job.Keys {
			if strings.Contains(value, "secret") {
				t.Errorf("%s: the key %s is %q", name, name, value)
			}
			head, print, found := strings.Cut(value, "/")
			if name == "device" || name == "endpoint" {
				head, print, found = "", value, true
			}
			if found && len(print) == 12 {
				value = strings.TrimPrefix(head+"/*", "/")
			}
			keys = append(keys, name+"="+value)
		}
		slices.Sort(keys)
		if got := strings.Join(keys, " "); got != test.keys || fmt.Sprint(job.Costs) != fmt.Sprint(test.costs) {
			t.Errorf("%s: keys %s, costs %v; want %s, %v", name, got, job.Costs, test.keys, test.costs)
		}
	}
}

// Users behind a provider's quota, which is a limit of the queue, wait there without being claimed: of all starts one in
// twenty at most is none of a send. The quota counts devices.
func TestQuotaIsALimit(t *testing.T) {
	t.Parallel()
	users := sample.Size(300, 300, 10_000)
	synctest.Test(t, func(t *testing.T) {
		const perSecond = 100
		c := openCrowd(t, "fcm")
		policy := queue.Policy{Tenant: []throttle.Rule{throttle.Leak(9500, time.Second)}}
		quota := map[string]queue.Limit{"fcm": {Counts: "fcm", Rules: []throttle.Rule{throttle.Leak(perSecond, time.Second)}}}
		s := newLimitedSchool(t, redistest.Mini(t), c.sender, notify.HandlerConfig{Shared: true}, policy, quota)
		var batch []queue.Job
		for u := range users {
			to := []notify.Target{of("fcm", c.target(2*u)), of("fcm", c.target(2*u+1))}
			job, err := notify.NewJob("school", fmt.Sprint("user-", u), notify.Message{Title: "a", Targets: to})
			must(t, err)
			batch = append(batch, job)
		}
		for part := range slices.Chunk(batch, 500) {
			_, err := newClient(t, s.rdb, "push").Enqueue(t.Context(), part...)
			must(t, err)
		}
		alone := time.Duration(2*users) * time.Second / perSecond
		time.Sleep(alone + alone/20 + time.Second)
		var sends []throttle.Event
		for _, r := range c.host.Received() {
			sends = append(sends, throttle.Event{At: r.At})
		}
		if broken := throttle.Verify(sends, []throttle.Rule{throttle.Window(perSecond+4, time.Second)}); len(broken) > 0 {
			t.Errorf("%d requests beyond the quota, the first %+v", len(broken), broken[0])
		}
		st := s.stats()
		t.Logf("%d requests, %.3f claims for a message", len(sends), float64(st.Started)/float64(users))
		if len(sends) != 2*users || st.Started*100 > int64(users)*105 {
			t.Errorf("%d requests to %d devices, %d starts of %d messages", len(sends), 2*users, st.Started, users)
		}
	})
}

// The same on a Redis of its own and in real time: while Google is down nothing but a few probes is sent there, each
// user's iPhone has its message, and after the outage every device has one.
func TestAnotherProviderIsDownOnARealRedis(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	const users = 100
	apns, fcm := openCrowd(t, "apns"), openCrowd(t, "fcm")
	all, err := notify.NewProviders(notify.Provider{Sender: apns.sender}, notify.Provider{Sender: fcm.sender})
	must(t, err)
	server := redistest.Start(t)
	s := newLimitedSchool(t, server.Client(t), all, notify.HandlerConfig{Shared: true}, queue.Policy{}, byKeys())
	var down atomic.Bool
	down.Store(true)
	fcm.host.Answer(func(notifytest.Received) *notifytest.Answer {
		if down.Load() {
			return notifytest.Unavailable(time.Second)
		}
		return nil
	})
	for i := range users {
		user := fmt.Sprint("user-", i)
		s.notify(user, notify.Message{Title: user, Targets: []notify.Target{of("fcm", fcm.target(i))}})
		s.notify(user, notify.Message{Title: user, Targets: []notify.Target{of("apns", apns.target(i))}})
	}
	redistest.Eventually(t, 20*time.Second, "each iPhone has its message", func() bool { return delivered(apns) == users })
	if n := len(fcm.host.Received()); n == 0 || n > users {
		t.Errorf("%d requests to Google meanwhile", n)
	}
	down.Store(false)
	redistest.Eventually(t, time.Minute, "each of Google's devices has its message", func() bool { return delivered(fcm) == users })
	if delivered(apns) != users {
		t.Errorf("%d messages for %d iPhones", delivered(apns), users)
	}
}
