package notify_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
)

// at returns a field of what a provider received, by its path, and nil if it is not there.
func at(r notifytest.Received, path string) any {
	var value any = r.Content
	for name := range strings.SplitSeq(path, "/") {
		fields, _ := value.(map[string]any)
		value = fields[name]
	}
	return value
}

// A fact is a field of what arrived, and what it has to be. Paths that begin with a capital
// letter are headers. nil: the field is not there.
type fact struct {
	path string
	want any
}

func check(t *testing.T, what string, r notifytest.Received, facts []fact) {
	t.Helper()
	for _, f := range facts {
		got := at(r, f.path)
		if f.path[0] >= 'A' && f.path[0] <= 'Z' {
			got = nil
			if values := r.Header.Values(f.path); len(values) > 0 {
				got = strings.Join(values, ", ")
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(f.want) {
			t.Errorf("%s: %s is %v, want %v", what, f.path, got, f.want)
		}
	}
}

// on is a message's facts by provider.
type on map[string][]fact

const (
	android = "message/android/"
	note    = android + "notification/"
	apple   = "message/apns/"
	aps     = apple + "payload/aps/"
	web     = "message/webpush/"
)

// What a device does with a message is what the message says, in each provider's words.
func TestMeaning(t *testing.T) {
	t.Parallel()
	in := func(d time.Duration) time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d) } // a bubble begins then
	unix := func(d time.Duration) any { return in(d).Unix() }
	tests := map[string]struct {
		m    notify.Message
		want on
	}{
		"normal": {notify.Message{Title: "a", Body: "b"}, on{
			"apns": {{"Apns-Priority", 5}, {"Apns-Push-Type", "alert"}, {"Apns-Topic", "com.example.school"}, {"Apns-Expiration", nil}, {"Apns-Collapse-Id", nil},
				{"Content-Type", "application/json"}, {"aps/alert/title", "a"}, {"aps/alert/body", "b"}, {"aps/sound", nil}, {"aps/badge", nil},
				{"aps/mutable-content", nil}, {"aps/content-available", nil}, {"image", nil}},
			"fcm": {{android + "priority", "NORMAL"}, {android + "ttl", "2419200s"}, {android + "collapse_key", nil}, {android + "notification", nil},
				{apple + "headers/apns-priority", 5}, {apple + "headers/apns-push-type", nil}, {apple + "payload", nil}, {apple + "fcm_options", nil},
				{web + "headers/TTL", 2419200}, {web + "headers/Urgency", "normal"}, {web + "headers/Topic", nil}, {web + "notification", nil},
				{"message/notification/title", "a"}, {"message/notification/body", "b"}, {"message/notification/image", nil}, {"message/data", nil},
				{"message/token", "fcm-device-1"}, {"validate_only", nil}},
			"webpush": {{"Ttl", 2419200}, {"Urgency", "normal"}, {"Topic", nil}, {"title", "a"}, {"body", "b"}, {"tag", nil}, {"data", nil}, {"badge", nil},
				{"Content-Encoding", "aes128gcm"}, {"Content-Type", "application/octet-stream"}},
			"webhook": {{"Content-Type", "application/json"}, {"Webhook-Id", "job-1"}, {"type", "push"}, {"data/title", "a"}, {"data/body", "b"}, {"data/expires", nil}},
		}},
		"high": {notify.Message{Title: "a", Priority: notify.High}, on{
			"apns":    {{"Apns-Priority", 10}},
			"fcm":     {{android + "priority", "HIGH"}, {apple + "headers/apns-priority", 10}, {web + "headers/Urgency", "high"}},
			"webpush": {{"Urgency", "high"}},
		}},
		"low": {notify.Message{Title: "a", Priority: notify.Low}, on{
			"apns":    {{"Apns-Priority", 1}},
			"fcm":     {{android + "priority", "NORMAL"}, {apple + "headers/apns-priority", 1}, {web + "headers/Urgency", "very-low"}},
			"webpush": {{"Urgency", "very-low"}},
		}},
		"only data, high": {notify.Message{Data: map[string]string{"screen": "news"}, Priority: notify.High}, on{
			"apns":    {{"Apns-Priority", 5}, {"Apns-Push-Type", "background"}, {"aps/content-available", 1}, {"aps/alert", nil}, {"screen", "news"}},
			"fcm":     {{apple + "headers/apns-push-type", "background"}, {apple + "headers/apns-priority", 5}, {aps + "content-available", 1}, {"message/notification", nil}, {"message/data/screen", "news"}, {android + "priority", "HIGH"}},
			"webpush": {{"data/screen", "news"}, {"title", nil}},
			"webhook": {{"data/data/screen", "news"}},
		}},
		"only a badge": {notify.Message{Badge: new(0)}, on{
			"apns":    {{"Apns-Push-Type", "alert"}, {"aps/badge", 0}, {"aps/content-available", nil}},
			"fcm":     {{apple + "headers/apns-push-type", "alert"}, {aps + "badge", 0}, {android + "notification", nil}},
			"webpush": {{"badge", 0}},
			"webhook": {{"data/badge", 0}},
		}},
		"badge, sound and image": {notify.Message{Title: "a", Badge: new(3), Sound: "bell.caf", Image: "https://school.example/snow.jpg"}, on{
			"apns":    {{"aps/badge", 3}, {"aps/sound", "bell.caf"}, {"aps/mutable-content", 1}, {"image", "https://school.example/snow.jpg"}},
			"fcm":     {{aps + "badge", 3}, {aps + "sound", "bell.caf"}, {aps + "mutable-content", 1}, {apple + "fcm_options/image", "https://school.example/snow.jpg"}, {note + "notification_count", 3}, {note + "sound", "bell.caf"}, {"message/notification/image", "https://school.example/snow.jpg"}},
			"webpush": {{"badge", 3}, {"sound", "bell.caf"}, {"image", "https://school.example/snow.jpg"}},
			"webhook": {{"data/badge", 3}, {"data/sound", "bell.caf"}, {"data/image", "https://school.example/snow.jpg"}},
		}},
		"expires": {notify.Message{Title: "a", Expires: in(90 * time.Minute)}, on{
			"apns":    {{"Apns-Expiration", unix(90 * time.Minute)}},
			"fcm":     {{android + "ttl", "5400s"}, {apple + "headers/apns-expiration", unix(90 * time.Minute)}, {web + "headers/TTL", 5400}},
			"webpush": {{"Ttl", 5400}},
			"webhook": {{"data/expires", "2000-01-01T01:30:00Z"}},
		}},
		"expires in a year": {notify.Message{Title: "a", Expires: in(365 * 24 * time.Hour)}, on{
			"apns": {{"Apns-Expiration", unix(365 * 24 * time.Hour)}},
			"fcm":  {{android + "ttl", "2419200s"}}, "webpush": {{"Ttl", 2419200}},
		}},
		"expired": {notify.Message{Title: "a", Expires: in(-time.Hour)}, on{
			"fcm": {{android + "ttl", "0s"}}, "webpush": {{"Ttl", 0}},
		}},
		"collapse": {notify.Message{Title: "a", CollapseKey: "closed"}, on{
			"apns":    {{"Apns-Collapse-Id", "closed"}},
			"fcm":     {{android + "collapse_key", "closed"}, {note + "tag", "closed"}, {apple + "headers/apns-collapse-id", "closed"}, {web + "headers/Topic", "w-77WNfEJECp1KvsUdYpVE1jWm2Tb_PE"}, {web + "notification/tag", "closed"}},
			"webpush": {{"Topic", "w-77WNfEJECp1KvsUdYpVE1jWm2Tb_PE"}, {"tag", "closed"}},
			"webhook": {{"data/collapse_key", "closed"}},
		}},
		"collapse by a key that no header takes": {notify.Message{Title: "a", CollapseKey: "snow ❄"}, on{
			"apns":    {{"Apns-Collapse-Id", "zx16DzszKD_7HcWioX9zNOEif1W-VmN_"}},
			"fcm":     {{android + "collapse_key", "zx16DzszKD_7HcWioX9zNOEif1W-VmN_"}, {apple + "headers/apns-collapse-id", "zx16DzszKD_7HcWioX9zNOEif1W-VmN_"}},
			"webpush": {{"tag", "snow ❄"}},
		}},
		"the fields of single platforms": {notify.Message{
			Title: "a", ChannelID: "news", Category: "REPLY", ThreadID: "class-7", InterruptionLevel: "time-sensitive",
			ClickAction: "https://school.example/news", Tag: "t", CollapseKey: "closed",
		}, on{
			"apns": {{"aps/category", "REPLY"}, {"aps/thread-id", "class-7"}, {"aps/interruption-level", "time-sensitive"}, {"Apns-Collapse-Id", "closed"}},
			"fcm": {{note + "channel_id", "news"}, {note + "click_action", "https://school.example/news"}, {note + "tag", "t"}, {android + "collapse_key", "closed"},
				{aps + "category", "REPLY"}, {aps + "thread-id", "class-7"}, {aps + "interruption-level", "time-sensitive"},
				{web + "fcm_options/link", "https://school.example/news"}, {web + "notification/tag", "t"}},
			"webpush": {{"tag", "t"}, {"click_action", "https://school.example/news"}},
			"webhook": {{"data/click_action", "https://school.example/news"}},
		}},
		"a click action of Android's": {notify.Message{Title: "a", ClickAction: "OPEN_NEWS"}, on{
			"fcm": {{note + "click_action", "OPEN_NEWS"}, {web + "fcm_options", nil}}, "webpush": {{"click_action", "OPEN_NEWS"}},
		}},
		"only data has nothing to show": {notify.Message{Data: map[string]string{"a": "b"}, CollapseKey: "k", ChannelID: "news"}, on{
			"fcm": {{android + "collapse_key", "k"}, {android + "notification", nil}, {web + "notification", nil}},
		}},
		"raw objects": {notify.Message{
			Title: "a", Priority: notify.Low, Sound: "default", Data: map[string]string{"screen": "news", "class": "7"}, CollapseKey: "k",
			Android: map[string]any{"priority": "HIGH", "notification": map[string]any{"color": "#336699", "sound": nil}},
			APNs: map[string]any{"headers": map[string]any{"apns-priority": "10"}, "payload": map[string]any{
				"aps": map[string]any{"relevance-score": 0.5, "alert": map[string]any{"subtitle": "s"}, "sound": nil}, "list": []any{1.0, 2.0},
			}},
			WebPush: map[string]any{"headers": map[string]any{"Urgency": "high", "TTL": "60"}, "notification": map[string]any{"requireInteraction": true, "tag": nil},
				"data": map[string]any{"screen": "map"}},
		}, on{
			"apns": {{"Apns-Priority", 10}, {"aps/relevance-score", 0.5}, {"aps/alert/subtitle", "s"}, {"aps/alert/title", "a"}, {"aps/sound", nil}, {"list", "[1 2]"}, {"screen", "news"}},
			"fcm": {{android + "priority", "HIGH"}, {note + "color", "#336699"}, {note + "sound", nil}, {note + "tag", "k"}, {android + "ttl", "2419200s"},
				{apple + "headers/apns-priority", 10}, {apple + "headers/apns-collapse-id", "k"}, {aps + "relevance-score", 0.5}, {aps + "sound", nil},
				{web + "headers/Urgency", "high"}, {web + "headers/TTL", 60}, {web + "notification/requireInteraction", true}, {web + "notification/tag", nil}, {web + "data/screen", "map"}},
			"webpush": {{"Urgency", "high"}, {"Ttl", 60}, {"requireInteraction", true}, {"tag", nil}, {"title", "a"}, {"data/screen", "map"}, {"data/class", "7"}},
		}},
	}
	for name, tt := range tests {
		for provider, facts := range tt.want {
			synctest.Test(t, func(t *testing.T) {
				s := stages[provider](t)
				tt.m.ID = "job-1"
				if o := s.sender.Send(t.Context(), tt.m, s.target); o.Action != notify.Done {
					t.Fatalf("%s, %s: %+v, refused %q", name, provider, o, s.host.Refusals())
				}
				check(t, name+", "+provider, last(t, s.host), facts)
			})
		}
	}
}

// The record's own fields say the same as the headers and the body.
func TestRecords(t *testing.T) {
	t.Parallel()
	inBubbles(t, func(t *testing.T, s stage) {
		m := notify.Message{ID: "job-1", Data: map[string]string{"a": "b"}, Priority: notify.High, CollapseKey: "k"}
		if o := s.sender.Send(t.Context(), m, s.target); o.Action != notify.Done {
			t.Fatalf("%+v", o)
		}
		r := last(t, s.host)
		got := strings.Join([]string{r.Priority, r.PushType, r.TTL, r.Urgency, r.Topic}, " ")
		topic := "glTDKakoUPbVOd03b0gW7idkUX2l4CNV"
		want := map[string]bool{
			"5 background   com.example.school": true, "  2419200 high " + topic: true, "HIGH background 2419200s high " + topic: true, "    ": true,
		}
		if !want[got] {
			t.Errorf("the record is %q", got)
		}
		if r.Header.Get("Authorization") != "" || r.Header.Get("Content-Type") == "" || r.Content == nil {
			t.Errorf("header %v, content %v", r.Header, r.Content)
		}
	})
}

// Apple's ID of a message is the same in every attempt, and another on each device.
func TestAppleIDs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := apnsStage(t, nil)
		for _, to := range []string{"0123456789abcdef", "0123456789abcdef", "0123456789abcdee"} {
			s.sender.Send(t.Context(), notify.Message{ID: "job-1", Title: "a"}, notify.Target{Token: to})
		}
		s.sender.Send(t.Context(), notify.Message{ID: "job-2", Title: "a"}, s.target)
		all := s.host.Received()
		if all[0].ID != all[1].ID || all[0].ID == all[2].ID || all[0].ID == all[3].ID || all[0].ID == "" {
			t.Errorf("%s, %s, %s, %s", all[0].ID, all[1].ID, all[2].ID, all[3].ID)
		}
	})
}

// A team's apps share a sender; a target says which is its own.
func TestSeveralTopics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := notifytest.NewAPNs(notifytest.Options{})
		must(t, err)
		p.Topics = []string{"com.example.parents"}
		s, err := notify.NewAPNs(notify.APNsConfig{
			Key: p.Key, KeyID: p.KeyID, TeamID: p.TeamID, Topic: p.Topic, Topics: p.Topics, Wire: wire(&p.Host),
		})
		must(t, err)
		closeLater(t, &p.Host, s)
		voip := map[string]any{"headers": map[string]any{"apns-topic": "com.example.parents"}}
		evil := map[string]any{"headers": map[string]any{"authorization": "bearer x"}}
		for _, tt := range []struct {
			app   string
			raw   map[string]any
			topic string // empty: not sent
		}{
			{"", nil, p.Topic}, {p.Topic, nil, p.Topic}, {"com.example.parents", nil, "com.example.parents"},
			{"", voip, "com.example.parents"}, {"com.example.other", nil, ""}, {"", evil, ""},
		} {
			before := len(p.Received())
			o := s.Send(t.Context(), notify.Message{ID: "1", Title: "a", APNs: tt.raw}, notify.Target{Token: "0123456789abcdef", App: tt.app})
			if (o.Action == notify.Done) != (tt.topic != "") || tt.topic == "" && (o.Action != notify.Drop || len(p.Received()) != before) {
				t.Errorf("%+v: %+v", tt, o)
			}
			if tt.topic != "" && last(t, &p.Host).Topic != tt.topic {
				t.Errorf("%+v: topic %s", tt, last(t, &p.Host).Topic)
			}
		}
		must(t, s.Check(t.Context()))
	})
}

// A message may be of any of Apple's push types: its topic is the app's with the suffix of the type.
func TestPushTypes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := notifytest.NewAPNs(notifytest.Options{})
		must(t, err)
		p.Topics = []string{"com.example.parents"}
		s, err := notify.NewAPNs(notify.APNsConfig{
			Key: p.Key, KeyID: p.KeyID, TeamID: p.TeamID, Topic: p.Topic, Topics: p.Topics, Wire: wire(&p.Host),
		})
		must(t, err)
		closeLater(t, &p.Host, s)
		const update = `"payload":{"aps":{"event":"update","timestamp":1,"content-state":{"score":2}}}`
		for _, tt := range []struct{ message, app, topic string }{ // no topic: not sent
			{`"apns":{"headers":{"apns-push-type":"liveactivity"},` + update + `}`, "", p.Topic + ".push-type.liveactivity"},
			{`"apns":{"headers":{"Apns-Push-Type":"liveactivity"},` + update + `}`, "com.example.parents", "com.example.parents.push-type.liveactivity"},
			{`"apns":{"headers":{"apns-push-type":"voip"}},"data":{"call":"1"}`, "", p.Topic + ".voip"},
			{`"apns":{"headers":{"apns-push-type":"liveactivity","apns-topic":"com.example.parents.push-type.liveactivity"},` + update + `}`, "", "com.example.parents.push-type.liveactivity"},
			{`"apns":{"headers":{"apns-push-type":"liveactivity","apns-topic":"com.example.other.push-type.liveactivity"},` + update + `}`, "", ""},
			{`"apns":{"headers":{"apns-push-type":"voip","apns-topic":"com.example.school.push-type.liveactivity"},` + update + `}`, "", ""},
		} {
			m, err := notify.ParseMessage([]byte(`{"priority":"high",` + tt.message + `}`))
			must(t, err)
			before := len(p.Received())
			o := s.Send(t.Context(), m, notify.Target{Token: "0123456789abcdef", App: tt.app})
			if tt.topic == "" {
				if o.Action != notify.Drop || len(p.Received()) != before {
					t.Errorf("%s: %s %v", tt.message, o.Action, o.Err)
				}
				continue
			}
			if o.Action != notify.Done {
				t.Errorf("%s: %s %v", tt.message, o.Action, o.Err)
			}
			check(t, tt.message, last(t, &p.Host), []fact{{"Apns-Topic", tt.topic}, {"Apns-Priority", 10}, {"aps/content-available", nil}})
		}
	})
}

// What fits is sent, what does not is not, and a byte is one however JSON may write it.
func TestSizes(t *testing.T) {
	t.Parallel()
	text := func(n int) notify.Message { return notify.Message{Title: "a", Body: strings.Repeat("x", n)} }
	tests := []struct {
		m    notify.Message
		sent string // by whom
	}{
		{notify.Message{Body: strings.Repeat("&", 3900)}, "apns fcm webpush webhook"},
		{text(3900), "apns fcm webpush webhook"},
		{text(4030), "apns fcm webhook"}, // browsers take 3993 bytes
		{text(4080), "webhook"},
		{notify.Message{Data: map[string]string{"a": strings.Repeat("x", 3950)}, CollapseKey: "k"}, "apns fcm webpush webhook"},
		{notify.Message{Data: map[string]string{"a": strings.Repeat("x", 4100)}}, "webhook"},
	}
	inBubbles(t, func(t *testing.T, s stage) {
		name := t.Name()[strings.LastIndex(t.Name(), "/")+1:]
		for i, tt := range tests {
			o := s.sender.Send(t.Context(), tt.m, s.target)
			want := notify.Drop
			if strings.Contains(tt.sent, name) {
				want = notify.Done
			}
			if o.Action != want || want == notify.Drop && !strings.Contains(o.Err.Error(), "bytes; at most") {
				t.Errorf("%d: %+v, want %s; refused %q", i, o, want, s.host.Refusals())
			}
		}
	})
}

// A redirect is not followed: it would take the message, and perhaps a token, elsewhere.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		inBubbles(t, func(t *testing.T, s stage) {
			s.host.Answer(func(notifytest.Received) *notifytest.Answer {
				return &notifytest.Answer{Status: status, Location: s.host.URL + "/elsewhere"}
			})
			o := s.sender.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, s.target)
			if n := len(s.host.Received()); n != 1 || o.Action == notify.Done {
				t.Errorf("%d: %d requests, %+v", status, n, o)
			}
		})
	}
}

// A dry run builds and checks, obtains tokens, and delivers nothing; FCM validates.
func TestDryRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		apns, err := notifytest.NewAPNs(notifytest.Options{})
		must(t, err)
		fcm, err := notifytest.NewFCM(notifytest.Options{})
		must(t, err)
		push, err := notifytest.NewWebPush(notifytest.Options{})
		must(t, err)
		hook, err := notifytest.NewWebhook(notifytest.Options{})
		must(t, err)
		sub, err := push.Subscribe("browser")
		must(t, err)
		dry := func(h *notifytest.Host) notify.Wire {
			w := wire(h)
			w.DryRun = true
			return w
		}
		a, err := notify.NewAPNs(notify.APNsConfig{Key: apns.Key, KeyID: apns.KeyID, TeamID: apns.TeamID, Topic: apns.Topic, Wire: dry(&apns.Host)})
		must(t, err)
		f, err := notify.NewFCM(notify.FCMConfig{Credentials: fcm.ServiceAccount, Wire: dry(&fcm.Host)})
		must(t, err)
		p, err := notify.NewWebPush(notify.WebPushConfig{Key: push.Key, Subject: "mailto:push@school.example", Wire: dry(&push.Host)})
		must(t, err)
		h, err := notify.NewWebhook(notify.WebhookConfig{Wire: dry(&hook.Host)})
		must(t, err)
		for _, tt := range []struct {
			host   *notifytest.Host
			sender interface {
				notify.Sender
				Close() error
			}
			to notify.Target
		}{
			{&apns.Host, a, notify.Target{Token: "0123456789abcdef"}},
			{&fcm.Host, f, notify.Target{Token: "device"}},
			{&push.Host, p, notify.Target{Token: sub.Endpoint, P256dh: sub.P256dh, Auth: sub.Auth}},
			{&hook.Host, h, notify.Target{Token: hook.URL + "/hook", Secret: hook.Secret}},
		} {
			closeLater(t, tt.host, tt.sender)
			if o := tt.sender.Send(t.Context(), notify.Message{Title: "a"}, tt.to); o.Action != notify.Done {
				t.Errorf("%T: %+v", tt.sender, o)
			}
			if o := tt.sender.Send(t.Context(), notify.Message{Title: "a"}, notify.Target{Token: "$"}); o.Action != notify.Drop && tt.host != &fcm.Host {
				t.Errorf("%T: a bad target: %+v", tt.sender, o)
			}
			for _, r := range tt.host.Received() {
				if !r.ValidateOnly {
					t.Errorf("%T delivered %+v", tt.sender, r)
				}
			}
		}
		if n := len(fcm.Received()); n != 2 {
			t.Errorf("FCM validated %d messages, want 2", n)
		}
	})
}

// A target of another provider is refused, and nothing is sent to anybody for it.
func TestTargetsOfOthers(t *testing.T) {
	t.Parallel()
	sub := notify.Target{Token: "https://push.example/x", P256dh: "k", Auth: "s"}
	targets := map[string][]notify.Target{
		"apns":    {{}, sub, {Token: "fcm-device:APA91"}, {Token: "https://a.example/"}, {Token: "../../evil"}},
		"fcm":     {{}, sub, {Token: "https://a.example/"}},
		"webpush": {{}, {Token: "0123456789abcdef"}, {Token: "https://a.example/"}},
		"webhook": {{}, sub, {Token: "0123456789abcdef"}, {Token: "https://127.0.0.1/hook"}, {Token: "https://127.0.0.1/hook", Secret: "short"}},
	}
	inBubbles(t, func(t *testing.T, s stage) {
		for _, to := range targets[t.Name()[strings.LastIndex(t.Name(), "/")+1:]] {
			if o := s.sender.Send(t.Context(), notify.Message{Title: "a"}, to); o.Action != notify.Drop || o.Err == nil {
				t.Errorf("%q: %+v, want it dropped", to.Token, o)
			}
		}
		if n := len(s.host.Received()); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}
