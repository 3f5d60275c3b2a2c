package notify

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseMessage(t *testing.T) {
	want := Message{
		Title: "School is closed", Body: "Snow.", Data: map[string]string{"screen": "news"},
		Sound: "bell.caf", Badge: new(3), Image: "https://school.example/snow.jpg",
		CollapseKey: "closed", Expires: time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC),
		Priority: High,
		Targets: []Target{
			{Token: "a"}, {Token: "b", Registered: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
			{Token: "https://push.example/1", P256dh: "key", Auth: "secret"},
		},
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseMessage(append([]byte(" \n"), text...))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	small, err := json.Marshal(Message{Body: "hi"})
	if err != nil || string(small) != `{"body":"hi"}` {
		t.Errorf("the small message is %s, %v", small, err)
	}
}

const wantTargets = `targets: want tokens, or objects such as {"token", "app", "registered_at"}, {"endpoint", "keys": {"p256dh", "auth"}} or {"endpoint", "secret"}`

func TestNotMessage(t *testing.T) {
	tests := map[string]string{
		``:                                   `want an object such as {"title":"Hello"}`,
		`null`:                               `want an object such as {"title":"Hello"}`,
		`["title"]`:                          `want an object such as {"title":"Hello"}`,
		`{}`:                                 `it has no title, no body, no data, no badge and no apns.payload; want one of them`,
		`{"targets":["a"]}`:                  `it has no title, no body, no data, no badge and no apns.payload; want one of them`,
		`{"at":1748607359}`:                  `unknown field "at"; want title, body, data, sound, badge, image, collapse_key, expires, priority, channel_id, category, thread_id, interruption_level, click_action, tag, android, apns, webpush or targets`,
		`{"title":5}`:                        `title: a number; want a string`,
		`{"title":"a","data":[]}`:            `data: a list; want an object`,
		`{"title":"a","data":{"n":1}}`:       `data: a number; want a string`,
		`{"title":"a","targets":"b"}`:        `targets: a string; want a list`,
		`{"title":"a","expires":"tomorrow"}`: `expires: want a time such as 2026-11-21T08:00:00Z`,
		`{"title":"a","priority":"now"}`:     `priority "now"; want high, normal or low`,
		`{"title":"a","targets":[5]}`:        wantTargets,
		`{"title":"a","targets":[{}]}`:       wantTargets,
		`{"title":"a","targets":[""]}`:       wantTargets,
		`{"title":"a","targets":[{"tokn":"secret"}]}`:                    wantTargets,
		`{"title":"a","targets":[{"endpoint":"secret"}]}`:                `targets: a push subscription needs both keys, p256dh and auth; a webhook's endpoint a secret; a token neither`,
		`{"title":"a","targets":["` + strings.Repeat(`","`, 100) + `"]}`: wantTargets,
		`{"title":"a","expires":5}`:                                      `expires: want a time such as 2026-11-21T08:00:00Z`,
		`{"badge":-1}`:                                                   `badge -1; want 0 or more`,
		`{"title":"a","badge":"3"}`:                                      `badge: a string; want a whole number`,
		`{"title":"a","badge":1.5}`:                                      `badge: a number 1.5; want a whole number`,
		`{"title":"a","image":"http://a.example/b.jpg"}`:                 `image: want a https URL`,
		`{"data":{"a":"b"},"sound":"default"}`:                           `a sound or an image without anything to show; want a title or a body too`,
		`{"title":"a"`:                                                   `the JSON ends too soon`,
		`{"title":"a"} {}`:                                               `something follows the object`,
		`{"title":a}`:                                                    `invalid character 'a' looking for beginning of value`,
	}
	for payload, want := range tests {
		_, err := ParseMessage([]byte(payload))
		if !errors.Is(err, ErrNotMessage) || err.Error() != "notify: not a message: "+want {
			t.Errorf("%s:\n got %v\nwant %s", payload, err, want)
		}
	}
}

func FuzzParseMessage(f *testing.F) {
	f.Add([]byte(`{"title":"a","data":{"k":"v"},"expires":"2026-11-21T08:00:00Z","targets":["t"]}`))
	f.Add([]byte(`{"at":1748607359}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, err := ParseMessage(payload)
		if err != nil {
			if strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), "notify.Message") {
				t.Fatalf("%q: %v", payload, err)
			}
			return
		}
		text, err := json.Marshal(m)
		if err != nil {
			return // a year beyond 9999 is read, not written
		}
		if again, err := ParseMessage(text); err != nil || again.Title != m.Title {
			t.Fatalf("%s: %+v, %v", text, again, err)
		}
	})
}
