package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
)

// scripts returns the two pieces of JavaScript of docs/notify.md: the page's and the
// service worker's.
func scripts(t *testing.T) (page, worker string) {
	t.Helper()
	var found []string
	for _, m := range block.FindAllStringSubmatch(read(t, filepath.Join("..", "..", "docs", "notify.md")), -1) {
		if m[1] == "js" {
			found = append(found, m[2])
		}
	}
	if len(found) != 2 {
		t.Fatalf("%d blocks of JavaScript in docs/notify.md, want 2", len(found))
	}
	return found[0], found[1]
}

// delivered returns what a browser gets of the documented message, decrypted by the stand-in.
func delivered(t *testing.T) map[string]any {
	t.Helper()
	service, err := notifytest.NewWebPush(notifytest.Options{})
	must(t, err)
	defer service.Close()
	sub, err := service.Subscribe("browser")
	must(t, err)
	sender, err := notify.NewWebPush(notify.WebPushConfig{
		Key: service.Key, Subject: "mailto:push@school.example",
		Wire: notify.Wire{URL: service.URL, RootCAs: service.RootCAs, Dial: service.Dial},
	})
	must(t, err)
	defer sender.Close()
	_, text := setUp(t, "Web Push")
	m, err := notify.ParseMessage([]byte(strings.NewReplacer("ENDPOINT", sub.Endpoint, "P256DH", sub.P256dh, "AUTH", sub.Auth).Replace(text)))
	must(t, err)
	if o := sender.Send(t.Context(), m, m.Targets[0]); o.Action != notify.Done {
		t.Fatalf("%+v, refused %q", o, service.Refusals())
	}
	return service.Received()[0].Content
}

// The service worker of the documentation takes out of a message what senders put into it.
func TestServiceWorkerKnowsTheFields(t *testing.T) {
	t.Parallel()
	_, worker := scripts(t)
	got := delivered(t)
	_, list, _ := strings.Cut(worker, "const {")
	list, _, found := strings.Cut(list, "...options}")
	if !found {
		t.Fatalf("the service worker takes no fields: %s", worker)
	}
	for name := range strings.SplitSeq(strings.Trim(strings.TrimSpace(list), ","), ",") {
		if name = strings.TrimSpace(name); got[name] == nil && name != "sound" { // the message has none
			t.Errorf("the service worker reads %q; the message has %v", name, got)
		}
	}
	for _, option := range []string{"body", "tag", "icon", "requireInteraction"} { // of showNotification
		if got[option] == nil {
			t.Errorf("the message has no %s: %v", option, got)
		}
	}
}

// A browser, as far as the documented scripts need one.
const browser = `
const calls = [], listeners = {};
const call = (name) => async (...args) => { calls.push([name, ...args]); };
const registration = {
  showNotification: call("show"),
  pushManager: {subscribe: async (options) => { calls.push(["subscribe", options]); return {toJSON: () => (SUBSCRIPTION)}; }},
};
const navigator = {
  setAppBadge: call("badge"),
  serviceWorker: {register: async (file) => { calls.push(["register", file]); return registration; }},
};
const fetch = call("fetch");
const self = {addEventListener: (name, f) => { listeners[name] = f; }, registration, clients: {openWindow: call("window")}};
PAGE
WORKER
(async () => {
  let until;
  const waitUntil = (promise) => { until = promise; };
  await subscribe("PUBLIC");
  listeners.push({data: {json: () => (MESSAGE)}, waitUntil});
  await until;
  const shown = calls.find(([name]) => name === "show");
  listeners.notificationclick({notification: {close: call("close"), data: shown[2].data}, waitUntil});
  await until;
  console.log(JSON.stringify(calls));
})();
`

// The scripts of the documentation, run: the page sends a target that messages can have,
// and the service worker shows what arrives, and opens what a click is to open.
func TestDocumentedScripts(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node to run JavaScript with")
	}
	page, worker := scripts(t)
	message, err := json.Marshal(delivered(t))
	must(t, err)
	const subscription = `{"endpoint": "https://push.example/1", "expirationTime": null, "keys": {"p256dh": "p", "auth": "a"}}`
	text := strings.NewReplacer("SUBSCRIPTION", subscription, "PAGE", page, "WORKER", worker, "MESSAGE", string(message)).Replace(browser)
	out, err := exec.CommandContext(t.Context(), node, "--input-type=commonjs", "-e", "(() => {"+text+"})()").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var calls [][]json.RawMessage
	if err := json.Unmarshal(out, &calls); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := make(map[string][]json.RawMessage)
	var order []string
	for _, c := range calls {
		var name string
		must(t, json.Unmarshal(c[0], &name))
		order = append(order, name)
		got[name] = c[1:]
	}
	if fmt.Sprint(order) != "[register subscribe fetch badge show close window]" {
		t.Fatalf("it did %v: %s", order, out)
	}
	var request struct{ Body string }
	must(t, json.Unmarshal(got["fetch"][1], &request))
	var to notify.Target
	if err := json.Unmarshal([]byte(request.Body), &to); err != nil || to.Token != "https://push.example/1" || to.P256dh != "p" || to.Auth != "a" {
		t.Errorf("the page sent %s: %v", request.Body, err)
	}
	var shown struct {
		Body, Tag, Icon    string
		RequireInteraction bool
		Title, Sound       any
	}
	must(t, json.Unmarshal(got["show"][1], &shown))
	if string(got["show"][0]) != `"School is closed"` || shown.Body != "Snow. See you on Monday." || shown.Tag != "closed" ||
		shown.Icon != "/icon.png" || !shown.RequireInteraction || shown.Title != nil {
		t.Errorf("it showed %s", got["show"])
	}
	if string(got["badge"][0]) != "1" || string(got["window"][0]) != `"https://school.example/news"` || string(got["register"][0]) != `"/sw.js"` {
		t.Errorf("badge %s, window %s, registered %s", got["badge"], got["window"], got["register"])
	}
}
