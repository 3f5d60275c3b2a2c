package interop

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/dop251/goja"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
)

// A browser runs the page and the service worker of docs/notify.md.
type browser struct {
	t    *testing.T
	page *goja.Runtime
	sw   *goja.Runtime
}

// What a browser provides, as far as the scripts use it.
const (
	pageHost = `
		let posted;
		const navigator = {serviceWorker: {async register(path) {
			if (path !== "/sw.js") throw new Error("no script " + path);
			return {pushManager: {async subscribe(options) {
				if (!options.userVisibleOnly || options.applicationServerKey !== publicKey) throw new Error("wrong options");
				return JSON.parse(subscription);
			}}};
		}}};
		async function fetch(path, options) { posted = options.body; }`
	workerHost = `
		let appBadge, shown = [], opened, listeners = {}, pending;
		const navigator = {async setAppBadge(n) { appBadge = n; }};
		const self = {
			addEventListener(name, f) { listeners[name] = f; },
			registration: {async showNotification(title, options) { shown.push({title, options}); }},
			clients: {async openWindow(url) { opened = url; }},
		};
		function push(text) { listeners.push({data: {json: () => JSON.parse(text)}, waitUntil(p) { pending = p; }}); }
		function click(notification) {
			listeners.notificationclick({notification: {...notification, close() {}}, waitUntil(p) { pending = p; }});
		}`
)

func newBrowser(t *testing.T) *browser {
	t.Helper()
	text, err := os.ReadFile("../../docs/notify.md")
	must(t, err)
	scripts := regexp.MustCompile("(?s)```js\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(scripts) != 2 {
		t.Fatalf("%d scripts in docs/notify.md, want the page's and the service worker's", len(scripts))
	}
	b := &browser{t, goja.New(), goja.New()}
	b.run(b.page, pageHost+scripts[0][1])
	b.run(b.sw, workerHost+scripts[1][1])
	return b
}

func (b *browser) run(r *goja.Runtime, script string) goja.Value {
	b.t.Helper()
	value, err := r.RunString(script)
	must(b.t, err)
	if promise, ok := value.Export().(*goja.Promise); ok && promise.State() != goja.PromiseStateFulfilled {
		b.t.Fatalf("%s: %v", script, promise.Result())
	}
	return value
}

// text returns a value as JSON.
func (b *browser) text(r *goja.Runtime, expression string) string {
	b.t.Helper()
	return b.run(r, "JSON.stringify("+expression+")").String()
}

// What the documentation tells a browser to do works with what the sender sends: what the page posts
// is a target, and the service worker shows the message.
func TestBrowser(t *testing.T) {
	p, err := notifytest.NewWebPush(notifytest.Options{TCP: true})
	must(t, err)
	defer p.Close()
	sub, err := p.Subscribe("browser")
	must(t, err)
	b := newBrowser(t)
	must(t, b.page.Set("publicKey", p.Public()))
	text, err := json.Marshal(map[string]any{
		"endpoint": sub.Endpoint, "expirationTime": nil, "keys": map[string]string{"p256dh": sub.P256dh, "auth": sub.Auth},
	})
	must(t, err)
	must(t, b.page.Set("subscription", string(text)))
	b.run(b.page, "subscribe(publicKey)")
	var to notify.Target
	must(t, json.Unmarshal([]byte(b.run(b.page, "posted").String()), &to))

	sender, err := notify.NewWebPush(notify.WebPushConfig{
		Key: p.Key, Subject: "mailto:push@school.example", AllowPrivate: true, Wire: notify.Wire{RootCAs: p.RootCAs},
	})
	must(t, err)
	defer sender.Close()
	for _, tt := range []struct {
		m                    notify.Message
		shown, badge, opened string
	}{
		{
			notify.Message{
				Title: "School is closed", Body: "Snow ❄ & ice", Badge: new(2), CollapseKey: "closed", ClickAction: "https://school.example/news",
				Data: map[string]string{"class": "7"}, WebPush: map[string]any{"notification": map[string]any{"icon": "/icon.png"}},
			},
			`[{"title":"School is closed","options":{"body":"Snow ❄ & ice","data":{"class":"7","click_action":"https://school.example/news"},"icon":"/icon.png","tag":"closed"}}]`,
			"2", `"https://school.example/news"`,
		},
		{notify.Message{Body: "b"}, `[{"title":"","options":{"body":"b","data":{}}}]`, "", ""},
		{notify.Message{Badge: new(0)}, `[]`, "0", ""},
	} {
		b.run(b.sw, "shown = []; appBadge = undefined; opened = undefined")
		if o := sender.Send(t.Context(), tt.m, to); o.Action != notify.Done {
			t.Fatalf("outcome %+v", o)
		}
		all := p.Received()
		plain, err := json.Marshal(all[len(all)-1].Content)
		must(t, err)
		must(t, b.sw.Set("arrived", string(plain)))
		b.run(b.sw, "push(arrived); pending")
		if got := sorted(t, b.text(b.sw, "shown")); got != sorted(t, tt.shown) {
			t.Errorf("shown %s, want %s", got, tt.shown)
		}
		if got := strings.TrimPrefix(b.text(b.sw, "appBadge"), "undefined"); got != tt.badge {
			t.Errorf("badge %s, want %s", got, tt.badge)
		}
		if tt.shown != "[]" {
			b.run(b.sw, "click(shown[0].options); pending")
		}
		if got := strings.TrimPrefix(b.text(b.sw, "opened"), "undefined"); got != tt.opened {
			t.Errorf("opened %s, want %s", got, tt.opened)
		}
	}
}

// sorted is JSON with its fields in order.
func sorted(t *testing.T, text string) string {
	t.Helper()
	var value any
	must(t, json.Unmarshal([]byte(text), &value))
	again, err := json.Marshal(value)
	must(t, err)
	return string(again)
}
