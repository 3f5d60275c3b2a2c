package notify_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A crowd is many devices behind one provider.
type crowd struct {
	host   *notifytest.Host
	sender notify.Sender
	target func(device int) notify.Target
	name   func(device int) string // how the provider records the device
}

func openCrowd(t *testing.T, provider string) crowd {
	t.Helper()
	switch provider {
	case "apns":
		s := apnsStage(t, nil)
		token := func(device int) string { return fmt.Sprintf("%064x", device+1) }
		return crowd{s.host, s.sender, func(d int) notify.Target { return notify.Target{Token: token(d)} }, token}
	case "fcm":
		s, _ := fcmStage(t)
		token := func(device int) string { return fmt.Sprint("device-", device) }
		return crowd{s.host, s.sender, func(d int) notify.Target { return notify.Target{Token: token(d)} }, token}
	case "webhook":
		s := webhookStage(t)
		path := func(device int) string { return fmt.Sprint("/hooks/", device) }
		return crowd{s.host, s.sender, func(d int) notify.Target { return notify.Target{Token: s.host.URL + path(d), Secret: s.target.Secret} }, path}
	}
	return openBrowsers(t, false)
}

// openRelay is browsers that are reached through a relay.
func openRelay(t *testing.T) crowd { return openBrowsers(t, true) }

func openBrowsers(t *testing.T, relay bool) crowd {
	t.Helper()
	p, err := notifytest.NewWebPush(notifytest.Options{})
	must(t, err)
	reach := wire(&p.Host)
	if !relay {
		reach.URL = ""
	}
	s, err := notify.NewWebPush(notify.WebPushConfig{Key: p.Key, Subject: "mailto:push@school.example", AllowPrivate: true, Wire: reach})
	must(t, err)
	closeLater(t, &p.Host, s)
	subscribed := make(map[int]notify.Target)
	name := func(device int) string { return fmt.Sprint("browser-", device) }
	return crowd{&p.Host, s, func(d int) notify.Target {
		if _, ok := subscribed[d]; !ok {
			sub, err := p.Subscribe(name(d))
			must(t, err)
			subscribed[d] = notify.Target{Token: sub.Endpoint, P256dh: sub.P256dh, Auth: sub.Auth}
		}
		return subscribed[d]
	}, name}
}

// A trial is an hour of steady traffic, or twenty minutes of it, in which one in n devices gets an answer.
type trial struct {
	provider string
	answer   *notifytest.Answer
	oneIn    int // 0: none
}

// A verdict is what the other devices saw of it.
type verdict struct {
	sent, delivered int
	p99             time.Duration
}

const (
	tenants = 3
	crowded = 1000 // devices
	lone    = 100  // the bad one where only one is
	between = 5 * time.Second
	leak    = 20                     // of each tenant, a second
	noise   = 2 * time.Second / leak // other attempts of the tenant's came before
)

// bad tells whether a device gets the bad answer: one in n does, in no order.
func (tr trial) bad(device int) bool {
	if tr.oneIn > 100 {
		return device == lone
	}
	return tr.oneIn > 0 && tr.bucket(device) == 0
}

// device returns who gets message n. A bad device that is alone gets a message every
// quarter of an hour, which is more than its share.
func (tr trial) device(n int) int {
	if tr.oneIn > 100 && n%180 == lone {
		return lone
	}
	return n % crowded
}

// bucket deals the devices out, in no order.
func (tr trial) bucket(device int) int {
	return rand.New(rand.NewPCG(uint64(device), 13)).IntN(tr.oneIn)
}

func (tr trial) run(t *testing.T) (v verdict) {
	c := openCrowd(t, tr.provider)
	var mu sync.Mutex
	forgotten := 0
	s := newSchool(t, c.sender, notify.HandlerConfig{Shared: true, Forget: func(context.Context, queue.Info, notify.Target, error) error {
		mu.Lock()
		defer mu.Unlock()
		forgotten++
		return nil
	}}, queue.Policy{Tenant: []throttle.Rule{throttle.Leak(leak, time.Second)}, User: []throttle.Rule{throttle.Window(5, time.Minute)}})
	isBad := make(map[string]bool)
	c.host.Answer(func(r notifytest.Received) *notifytest.Answer {
		if mu.Lock(); isBad[r.Device] {
			mu.Unlock()
			return tr.answer
		}
		mu.Unlock()
		return &notifytest.Answer{Delay: 30 * time.Millisecond}
	})
	sent := make(map[string]time.Time)
	good := make(map[string]bool)
	client := newClient(t, s.rdb, "push")
	begin, n, lasts := time.Now(), 0, time.Duration(sample.Size(20, 20, 60))*time.Minute
	for ; time.Since(begin) < lasts; n++ {
		device := tr.device(n)
		to, name := c.target(device), c.name(device)
		mu.Lock()
		isBad[name] = tr.bad(device)
		mu.Unlock()
		title := fmt.Sprint("message ", n)
		job, err := notify.NewJob(fmt.Sprint("school-", n%tenants), fmt.Sprint("user-", device), notify.Message{Title: title, Targets: []notify.Target{to}})
		must(t, err)
		sent[title], good[title] = time.Now(), !tr.bad(device)
		_, err = client.Enqueue(t.Context(), job)
		must(t, err)
		time.Sleep(between)
	}
	time.Sleep(time.Minute)
	var waits []time.Duration
	for _, r := range c.host.Received() {
		if good[r.Title] && r.Status/100 == 2 {
			waits = append(waits, r.At.Sub(sent[r.Title]))
		}
	}
	for title := range good {
		if good[title] {
			v.sent++
		}
	}
	slices.Sort(waits)
	if v.delivered = len(waits); v.delivered > 0 {
		v.p99 = waits[v.delivered*99/100]
	}
	tr.account(t, c, s, n, &forgotten)
	return v
}

// account checks, once the provider is well again, that every message arrived once, is
// dead, or had a device that is gone.
func (tr trial) account(t *testing.T, c crowd, s *school, offered int, forgotten *int) {
	c.host.Answer(nil)
	for begin := time.Now(); time.Since(begin) < 45*time.Minute && s.unfinished() > 0; {
		time.Sleep(time.Minute)
	}
	arrived := make(map[string]int)
	for _, r := range c.host.Received() {
		if r.Status/100 == 2 {
			arrived[r.Title]++
		}
	}
	for title, times := range arrived {
		if times != 1 {
			t.Errorf("%s arrived %d times", title, times)
		}
	}
	st := s.stats()
	if s.unfinished() != 0 || st.Done+st.Dead+st.Dropped != int64(offered) {
		t.Errorf("of %d offered: %+v", offered, st)
	}
	if done := len(arrived) + *forgotten; done != int(st.Done) {
		t.Errorf("%d arrived and %d forgotten; but %d done", len(arrived), *forgotten, st.Done)
	}
}

// unfinished returns how many jobs are neither done nor dead nor dropped.
func (s *school) unfinished() int64 {
	st := s.stats()
	return st.Waiting + st.Later + st.Running
}

// One in n devices gets a bad answer, whichever, for an hour: the others do not notice. Rows of one
// meaning are handled alike, so a sample has one of each, and a fleet of one size.
func TestOthersDoNotNotice(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	sizes := []int{10}
	if sample.Whole() {
		sizes = []int{1000, 10, 3}
	}
	type row struct {
		trial
		name string
	}
	var rows []row
	met := make(map[string]bool)
	for _, r := range notify.Rows() {
		if !slices.Contains([]string{"apns", "fcm", "webpush", "webhook"}, r.Provider) || met[r.Provider+r.Meaning] && !sample.Whole() {
			continue
		}
		met[r.Provider+r.Meaning] = true
		for _, n := range sizes {
			answer := &notifytest.Answer{Status: r.Status, Body: r.Body, RetryAfter: r.RetryAfter}
			rows = append(rows, row{trial{r.Provider, answer, n}, fmt.Sprintf("%d %.40s %s 1 in %d", r.Status, strings.Trim(r.Body, "<>{}"), r.RetryAfter, n)})
		}
	}
	drawn := make(map[string][]row)
	for _, r := range sample.Draw(t, rows, 1, 2) {
		drawn[r.provider] = append(drawn[r.provider], r)
	}
	for provider, rows := range drawn {
		t.Run(provider, func(t *testing.T) {
			var calm verdict
			synctest.Test(t, func(t *testing.T) { calm = trial{provider: provider}.run(t) })
			if calm.delivered != calm.sent {
				t.Fatalf("without bad answers: %+v", calm)
			}
			for _, r := range rows {
				t.Run(r.name, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { r.compare(t, calm) })
				})
			}
		})
	}
}

// compare runs a trial, and compares what the others got with what they get without it.
func (tr trial) compare(t *testing.T, calm verdict) {
	got := tr.run(t)
	if got.sent == calm.sent {
		t.Error("nobody got the bad answer: nothing is tested")
	}
	if slow := calm.p99 + max(calm.p99/20, noise); got.p99 > slow || got.delivered*20 < got.sent*19 {
		t.Errorf("the others: %d of %d delivered, p99 %v; without bad answers p99 %v", got.delivered, got.sent, got.p99, calm.p99)
	}
	t.Logf("%d of %d, p99 %v; calm %v", got.delivered, got.sent, got.p99, calm.p99)
}
