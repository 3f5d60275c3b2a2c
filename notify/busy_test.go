package notify_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
)

// oneByOne is a webhook's endpoint that takes a request at a time.
func oneByOne(t *testing.T) (*notifytest.Webhook, notify.Sender) {
	t.Helper()
	p, err := notifytest.NewWebhook(notifytest.Options{Streams: 1})
	must(t, err)
	w := wire(&p.Host)
	w.Connections = 1
	s, err := notify.NewWebhook(notify.WebhookConfig{Wire: w})
	must(t, err)
	closeLater(t, &p.Host, s)
	return p, s
}

// An endpoint that takes fewer messages than come gets all of them as fast as it takes them:
// waiting for its only connection is no failed attempt and says nothing against it.
func TestBusyEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const messages, each = 40, 2 * time.Second // of twelve at once the last waits 24 s, longer than the timeout
		p, sender := oneByOne(t)
		p.Answer(func(notifytest.Received) *notifytest.Answer { return &notifytest.Answer{Delay: each} })
		s := newSchool(t, sender, notify.HandlerConfig{}, queue.Policy{})
		for i := range messages {
			s.notify(fmt.Sprint("user-", i), notify.Message{Title: fmt.Sprint(i), Targets: []notify.Target{{Token: p.URL + "/hook", Secret: p.Secret}}})
		}
		time.Sleep(messages*each + 20*time.Second)
		if got := len(p.Received()); got != messages {
			t.Errorf("%d requests, want %d", got, messages)
		}
		if st := s.stats(); st.Done != messages || st.Failed != 0 || strings.Contains(s.logged(), "sending through it is suspended") {
			t.Errorf("%+v; %s", st.Counters, s.logged())
		}
	})
}

// An endpoint that has stopped answering fails, also for those that wait for its only connection.
func TestBusyEndpointThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, sender := oneByOne(t)
		p.Answer(func(notifytest.Received) *notifytest.Answer { return &notifytest.Answer{Hang: true} })
		s := newSchool(t, sender, notify.HandlerConfig{}, queue.Policy{})
		for i := range 40 {
			s.notify(fmt.Sprint("user-", i), notify.Message{Title: fmt.Sprint(i), Targets: []notify.Target{{Token: p.URL + "/hook", Secret: p.Secret}}})
		}
		time.Sleep(time.Minute)
		if !strings.Contains(s.logged(), "sending through it is suspended") {
			t.Errorf("the endpoint is not suspended; %+v", s.stats().Counters)
		}
	})
}

// A provider of whose answers a fifth hang is not suspended, and the other messages are in time
// while the worker has places for those that hang.
func TestSomeAnswersHang(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const messages, gap = 600, 100 * time.Millisecond // two a second hang, each for 15 s
		stage, _ := fcmStage(t)
		var n atomic.Int64
		hangs := make(map[string]bool)
		stage.host.Answer(func(r notifytest.Received) *notifytest.Answer {
			if n.Add(1)%5 == 0 {
				hangs[r.Title] = true
				return &notifytest.Answer{Hang: true}
			}
			return &notifytest.Answer{Delay: 50 * time.Millisecond}
		})
		s := newSchool(t, stage.sender, notify.HandlerConfig{Shared: true}, queue.Policy{})
		offered := make(map[string]time.Time)
		for i := range messages {
			title := fmt.Sprint(i)
			offered[title] = time.Now()
			s.notify(fmt.Sprint("user-", i), notify.Message{Title: title, Targets: []notify.Target{{Token: fmt.Sprint("device-", i)}}})
			time.Sleep(gap)
		}
		time.Sleep(10 * time.Minute)
		arrived := 0
		for _, r := range stage.host.Received() {
			if r.Status != 200 {
				continue
			}
			arrived++
			if late := r.At.Sub(offered[r.Title]); late > 100*time.Millisecond && !hangs[r.Title] {
				t.Errorf("message %s arrived after %v", r.Title, late)
			}
		}
		if arrived != messages || strings.Contains(s.logged(), "sending through it is suspended") {
			t.Errorf("%d of %d arrived; %s", arrived, messages, s.logged())
		}
	})
}
