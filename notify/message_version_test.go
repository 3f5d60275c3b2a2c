package notify_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/queue"
)

// While workers are upgraded, a message of the next version is not dead because an old one
// got it; what no version can read is.
func TestMessagesOfANewerVersion(t *testing.T) {
	t.Parallel()
	for payload, readable := range map[string]bool{
		`{"title":"a","future":1,"targets":["t"]}`:                   true,
		`{"title":"a","targets":[{"token":"t","future":{"a":"b"}}]}`: true,
		`{"title":"a","targets":[{"token":1}]}`:                      false,
		`{"title":1,"targets":["t"]}`:                                false,
	} {
		synctest.Test(t, func(t *testing.T) {
			var r recorder
			s := newSchool(t, &r, notify.HandlerConfig{}, queue.Policy{})
			_, err := newClient(t, s.rdb, "push").Enqueue(t.Context(), queue.Job{Tenant: "school", User: "u", Type: "push", Payload: []byte(payload)})
			must(t, err)
			time.Sleep(10 * time.Minute)
			st := s.stats()
			if alive := st.Dead == 0 && st.Failed > 1 && st.Later == 1; alive != readable || r.sent() != "[]" {
				t.Errorf("%s: %+v", payload, st)
			}
		})
	}
}

// What no push provider takes is refused before it has a slot.
func TestTooLargeForAJob(t *testing.T) {
	browser := notify.Target{Token: "https://push.example/1", P256dh: "p", Auth: "a"}
	for _, tt := range []struct {
		size    int
		targets []notify.Target
		refused bool
	}{
		{4000, []notify.Target{of("apns", notify.Target{Token: "00ff"})}, false},
		{4096, []notify.Target{of("apns", notify.Target{Token: "00ff"})}, true},
		{5000, []notify.Target{of("fcm", notify.Target{Token: "t"}), browser}, true},
		{5000, []notify.Target{browser, {Token: "https://hook.example", Secret: "s"}}, false},
		{5000, []notify.Target{{Token: "of a sender of one's own"}}, false},
		{5000, nil, false},
	} {
		_, err := notify.NewJob("school", "u", notify.Message{Body: strings.Repeat("x", tt.size), Targets: tt.targets})
		if (err != nil) != tt.refused || err != nil && !strings.Contains(err.Error(), "at most 4096") {
			t.Errorf("%d bytes to %d targets: %v", tt.size, len(tt.targets), err)
		}
	}
}
