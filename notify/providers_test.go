package notify_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// threeProviders are an iPhone's, an Android phone's and a browser's, and one handler.
func threeProviders(t *testing.T) (apns, fcm, web crowd, all *notify.Providers) {
	t.Helper()
	apns, fcm, web = openCrowd(t, "apns"), openCrowd(t, "fcm"), openCrowd(t, "webpush")
	all, err := notify.NewProviders(
		notify.Provider{Sender: apns.sender, App: "com.example.school"}, notify.Provider{Sender: fcm.sender}, notify.Provider{Sender: web.sender})
	must(t, err)
	return apns, fcm, web, all
}

func of(provider string, to notify.Target) notify.Target {
	to.Provider = provider
	return to
}

// An iPhone, an Android phone and a browser of one user share one window. While one of
// the providers is down, or takes requests and does not answer, the other devices get
// everything when they get it without that, and that one afterwards what it has missed, once.
func TestThreeProvidersOneWindow(t *testing.T) {
	t.Parallel()
	const slow, fast = 1, 20 // starts a second: the retries come before all is sent, or what hangs takes all its places
	type trouble struct {
		name      string
		perSecond int
		bad       int // which provider has it
		answer    *notifytest.Answer
	}
	var troubles []trouble
	for bad, provider := range []string{"apns", "fcm", "webpush"} {
		for name, answers := range map[string][]*notifytest.Answer{
			"down":     {notifytest.Unavailable(0), notifytest.FCMError(503, "UNAVAILABLE"), notifytest.Unavailable(0)},
			"hanging":  {{Hang: true}, {Hang: true}, {Hang: true}},
			"quota":    {notifytest.TooMany(time.Minute), notifytest.TooMany(time.Minute), notifytest.TooMany(time.Minute)},
			"refusing": {notifytest.Reason(403, "InvalidProviderToken"), notifytest.FCMError(403, "PERMISSION_DENIED"), notifytest.HTML(500)},
		} {
			troubles = append(troubles, trouble{provider + " " + name, slow, bad, answers[bad]})
		}
		troubles = append(troubles, trouble{provider + " flooded", fast, bad, &notifytest.Answer{Hang: true}})
	}
	slices.SortFunc(troubles, func(a, b trouble) int { return strings.Compare(a.name, b.name) })
	calm := make(map[int][3]map[string]time.Duration)
	for _, tr := range sample.Draw(t, troubles, 1, 4) {
		if _, there := calm[tr.perSecond]; !there {
			synctest.Test(t, func(t *testing.T) { calm[tr.perSecond] = threeThroughOne(t, tr.perSecond, -1, nil) })
		}
		want := calm[tr.perSecond]
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := threeThroughOne(t, tr.perSecond, tr.bad, tr.answer)
				for i := range 3 {
					late, worst := 0, time.Duration(0)
					for title, at := range want[i] {
						if by := got[i][title] - at; by > 10*time.Millisecond { // a slot is 1 s, or 50 ms; one whose lane has to be read first comes a millisecond later
							late, worst = late+1, max(worst, by)
						}
					}
					if i != tr.bad && late > 0 {
						t.Errorf("%d of %d messages came later to another provider's devices, by up to %v", late, len(want[i]), worst)
					}
				}
			})
		})
	}
}

// threeThroughOne offers three messages to each of sixty users with three devices and a
// window of two in a quarter of an hour. One of the providers is in trouble for ten
// minutes. It returns when, from the first offer, what had arrived in the first three.
func threeThroughOne(t *testing.T, perSecond, bad int, trouble *notifytest.Answer) (arrived [3]map[string]time.Duration) {
	const users = 60
	apns, fcm, web, all := threeProviders(t)
	crowds := []crowd{apns, fcm, web}
	s := newSchool(t, all, notify.HandlerConfig{Shared: true}, queue.Policy{
		Tenant: []throttle.Rule{throttle.Leak(perSecond, time.Second)}, User: []throttle.Rule{throttle.Window(2, 15*time.Minute)},
	})
	if bad >= 0 {
		crowds[bad].host.Answer(func(notifytest.Received) *notifytest.Answer { return trouble })
	}
	begin := time.Now()
	for n := range 3 {
		for u := range users {
			s.notify(fmt.Sprint("user-", u), notify.Message{Title: fmt.Sprint("message ", n, " to ", u), Targets: []notify.Target{
				of("apns", apns.target(u)), of("fcm", fcm.target(u)), web.target(u),
			}})
			time.Sleep(time.Millisecond) // users take turns in the order of their offers
		}
	}
	// 120 messages are two minutes of the leak's, or 6 s; the third to each waits for its window.
	time.Sleep(3 * time.Minute)
	for i, c := range crowds {
		arrived[i] = make(map[string]time.Duration)
		for _, r := range c.host.Received() {
			if r.Status/100 == 2 {
				arrived[i][r.Title] = r.At.Sub(begin)
			}
		}
		if n := len(arrived[i]); i != bad && n != 2*users {
			t.Errorf("%d messages arrived, want the window's two to each: %d", n, 2*users)
		}
	}
	time.Sleep(7 * time.Minute)
	for i, c := range crowds {
		if n := delivered(c); i != bad && n != 2*users {
			t.Errorf("%d messages within the window of two", n)
		}
		if n := len(c.host.Received()); i == bad && n > 300 {
			t.Errorf("%d requests to a provider in trouble", n)
		}
		c.host.Answer(nil)
	}
	for time.Since(begin) < 4*time.Hour && s.unfinished() > 0 {
		time.Sleep(time.Minute)
	}
	for _, c := range crowds {
		if n := delivered(c); n != 3*users {
			t.Errorf("in the end %d messages arrived, want %d, once each", n, 3*users)
		}
	}
	if st := s.stats(); st.Done != 3*users || st.Dead != 0 {
		t.Errorf("%+v", st)
	}
	return arrived
}

// Each target goes to its own provider. What is none's is refused, with the reason and
// without the token: never sent, never forgotten.
func TestTargetsOfNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		apns, fcm, web, all := threeProviders(t)
		several := []notify.Sender{all, apns.sender, fcm.sender, web.sender}
		browser, token := web.target(1), notify.Target{Token: "s3cr3t-token"}
		hook := notify.Target{Token: "https://s3cr3t.example/hook"}
		tests := []struct {
			sender int
			target notify.Target
			want   string
		}{
			{0, of("apns", browser), "the target is not one of apns: it is a browser's push subscription"},
			{0, of("webpush", token), "the target is not one of webpush: want a push subscription, {endpoint, keys: {p256dh, auth}}"},
			{0, of("fcm", hook), "the target is not one of fcm: it is a URL; want a device's token"},
			{0, of("apns", token), "the target is not one of apns: want a device's token in hexadecimal"},
			{0, of("sms", token), `no sender here for a target of provider "sms", app ""; there are apns/com.example.school, fcm, webpush`},
			{0, notify.Target{Token: "0123abcd"}, "the target says no provider, and may be for apns or fcm"},
			{0, notify.Target{Token: "0123abcd", Provider: "apns", App: "com.example.other"}, "no sender here for a target of provider \"apns\", app \"com_example_other\""},
			{0, hook, "no sender here for a target"},
			{1, browser, "the target is not one of apns: it is a browser's push subscription"},
			{2, browser, "the target is not one of fcm: it is a browser's push subscription"},
			{2, hook, "the target is not one of fcm: it is a URL"},
			{3, token, "the target is not one of webpush: want a push subscription"},
			{3, of("fcm", token), `no sender here for a target of provider "fcm"`},
		}
		for i, tt := range tests {
			s := newSchool(t, several[tt.sender], notify.HandlerConfig{Forget: func(context.Context, queue.Info, notify.Target, error) error {
				t.Error("a target of another provider is forgotten")
				return nil
			}}, queue.Policy{})
			s.notify(fmt.Sprint("user-", i), notify.Message{Title: "a", Targets: []notify.Target{tt.target}})
			time.Sleep(time.Second)
			dead, err := s.inspector().Dead(t.Context(), "", 10)
			must(t, err)
			if len(dead) != 1 || !strings.Contains(dead[0].Error, tt.want) || strings.Contains(dead[0].Error+s.logged(), "s3cr3t") {
				t.Errorf("%d: dead %+v, want %q", i, dead, tt.want)
			}
		}
		for _, c := range []crowd{apns, fcm, web} {
			if n := len(c.host.Received()); n != 0 {
				t.Errorf("%d requests, want none", n)
			}
		}
	})
}

// A target says in JSON what it is for, and says it again the same.
func TestTargetsSayTheirProvider(t *testing.T) {
	text := `{"title":"a","targets":["t",{"provider":"apns","app":"com.example.school","token":"00ff"},` +
		`{"provider":"webpush","endpoint":"https://push.example/1","keys":{"p256dh":"p","auth":"a"}}]}`
	m, err := notify.ParseMessage([]byte(text))
	must(t, err)
	if to := m.Targets[1]; to.Provider != "apns" || to.App != "com.example.school" || m.Targets[2].Provider != "webpush" {
		t.Errorf("%q %q", to.Provider, to.App)
	}
	if again, err := json.Marshal(m); err != nil || string(again) != text {
		t.Errorf("%s, %v", again, err)
	}
}

// Providers of one name are told apart by their apps, and mistakes are refused.
func TestNewProviders(t *testing.T) {
	var a, b recorder
	apps, err := notify.NewProviders(notify.Provider{Name: "sms", App: "one", Sender: &a}, notify.Provider{Name: "sms", App: "two", Sender: &b})
	must(t, err)
	for _, app := range []string{"", "one", "two"} {
		if o := apps.Send(t.Context(), notify.Message{Title: "x"}, notify.Target{Token: app, Provider: "sms", App: app}); o.Action != notify.Done {
			t.Errorf("%q: %+v", app, o)
		}
	}
	if got := a.sent() + b.sent(); got != "[x  x one][x two]" {
		t.Errorf("sent %s", got)
	}
	for want, list := range map[string][]notify.Provider{
		"no provider":               {},
		"provider 1 has no sender":  {{Name: "a"}},
		"provider 2 has no name":    {{Name: "a", Sender: &a}, {Sender: &b}},
		`two providers are named a`: {{Name: "a", Sender: &a}, {Name: "a", Sender: &b}},
	} {
		if _, err := notify.NewProviders(list...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// Whoever asks is told of each attempt: what the provider called it, what it answered and
// how long that took. Metrics say so by provider and code.
func TestSentAndMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		apns, fcm, web, all := threeProviders(t)
		var mu sync.Mutex
		told := make(map[string]notify.Sent)
		registry := prometheus.NewRegistry()
		s := newSchool(t, all, notify.HandlerConfig{Shared: true, Registerer: registry, Sent: func(_ context.Context, s notify.Sent) {
			mu.Lock()
			defer mu.Unlock()
			told[s.Provider+" "+string(s.Action)] = s
		}}, queue.Policy{})
		fcm.host.Answer(func(notifytest.Received) *notifytest.Answer { return notifytest.Unregistered() })
		apns.host.Answer(func(notifytest.Received) *notifytest.Answer { return &notifytest.Answer{Delay: 70 * time.Millisecond} })
		web.host.Answer(func(notifytest.Received) *notifytest.Answer {
			return &notifytest.Answer{Status: 413, Body: `{"reason":"PayloadTooLarge"}`}
		})
		s.notify("teacher", notify.Message{Title: "a", Targets: []notify.Target{of("apns", apns.target(1)), of("fcm", fcm.target(1)), web.target(1)}})
		time.Sleep(time.Second)
		a, f, w := told["apns done"], told["fcm forget"], told["webpush drop"]
		if a.ID != last(t, apns.host).ID || a.ID == "" || a.Status != 200 || a.Err != nil || a.Latency != 70*time.Millisecond || a.App != "com.example.school" {
			t.Errorf("apns: %+v", a)
		}
		if f.Status != 404 || f.Err == nil || f.Job.User != "teacher" || f.Device == "" || f.Device == a.Device || w.Status != 413 {
			t.Errorf("fcm: %+v\nwebpush: %+v", f, w)
		}
		families, err := registry.Gather()
		must(t, err)
		got := fmt.Sprint(families)
		for _, want := range []string{
			`name:"action"  value:"done"`, `name:"code"  value:"UNREGISTERED"`, `name:"provider"  value:"apns/com.example.school"`, `name:"code"  value:"413"`,
			"waterclock_send_duration_seconds", "sample_sum:0.07",
		} {
			if !strings.Contains(strings.ReplaceAll(got, " ", ""), strings.ReplaceAll(want, " ", "")) {
				t.Errorf("the metrics do not have %s:\n%s", want, got)
			}
		}
	})
}

// A gauge says until when a provider is suspended.
func TestSuspendedGauge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := openCrowd(t, "apns")
		registry := prometheus.NewRegistry()
		s := newSchool(t, c.sender, notify.HandlerConfig{Shared: true, Registerer: registry}, queue.Policy{})
		c.host.Answer(func(notifytest.Received) *notifytest.Answer { return notifytest.Unavailable(time.Hour) })
		offerAll(t, s, c, 30)
		time.Sleep(time.Second)
		families, err := registry.Gather()
		must(t, err)
		if want := fmt.Sprintf("%g", float64(s.begin.Add(time.Hour).Unix())); !strings.Contains(fmt.Sprint(families), "gauge:{value:"+want) {
			t.Errorf("the gauge is not %s: %v", want, families)
		}
	})
}
