package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/internal/senders"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
)

var block = regexp.MustCompile("(?s)```(\\w*)\n(.*?)```")

// setUp returns the command and the message of a section of docs/notify.md.
func setUp(t *testing.T, title string) (args []string, message string) {
	t.Helper()
	_, section, found := strings.Cut(read(t, filepath.Join("..", "..", "docs", "notify.md")), "\n### "+title)
	if !found {
		t.Fatalf("docs/notify.md has no section %q", title)
	}
	section, _, _ = strings.Cut(section, "\n### ")
	for _, m := range block.FindAllStringSubmatch(section, -1) {
		switch m[1] {
		case "sh":
			args = strings.Fields(strings.ReplaceAll(m[2], "\\\n", " "))
		case "json":
			message = m[2]
		}
	}
	if len(args) == 0 || args[0] != "bin/worker" || message == "" {
		t.Fatalf("%s: the command is %q, the message %q", title, args, message)
	}
	return args[1:], message
}

// Each set-up of docs/notify.md delivers its message, as it is written there but for the
// addresses and the keys.
func TestDocumentedSetUps(t *testing.T) {
	sample.Slow(t)
	tcp := notifytest.Options{TCP: true}
	google, err := notifytest.NewFCM(tcp)
	must(t, err)
	apple, err := notifytest.NewAPNs(tcp)
	must(t, err)
	apple.Topics = []string{"com.example.parents"}
	web, err := notifytest.NewWebPush(tcp)
	must(t, err)
	sub, err := web.Subscribe("browser")
	must(t, err)
	hook, err := notifytest.NewWebhook(tcp)
	must(t, err)
	for _, tt := range []struct {
		title   string
		host    *notifytest.Host
		secret  string
		instead []string // of what stands for it in the message
		args    []string
		arrived func(r notifytest.Received) bool
	}{
		{"FCM", &google.Host, string(google.ServiceAccount), []string{"DEVICE-TOKEN", "phone"}, []string{"--provider-url", google.URL},
			func(r notifytest.Received) bool {
				return r.Device == "phone" && r.Priority == "HIGH" && r.Collapse == "closed"
			}},
		{"APNs", &apple.Host, string(apple.Key), []string{"DEVICE-TOKEN", "0123456789abcdef"}, []string{"--provider-url", apple.URL},
			func(r notifytest.Received) bool {
				return r.Topic == "com.example.parents" && r.Priority == "10" && *r.Badge == 1
			}},
		{"Web Push", &web.Host, web.Key, []string{"ENDPOINT", sub.Endpoint, "P256DH", sub.P256dh, "AUTH", sub.Auth}, []string{"--webpush-private"},
			func(r notifytest.Received) bool {
				return r.Urgency == "high" && r.Content["icon"] == "/icon.png" && r.Content["tag"] == "closed"
			}},
		{"Webhooks", &hook.Host, "", []string{"ENDPOINT", hook.URL + "/hook", "SECRET", hook.Secret}, []string{"--webhook-private"},
			func(r notifytest.Received) bool { return r.Device == "/hook" && r.Data["order"] == "17" }},
	} {
		t.Run(tt.title, func(t *testing.T) {
			defer tt.host.Close()
			server, dir := redistest.Start(t), t.TempDir()
			t.Setenv(senders.SecretVariable, "")
			args, message := setUp(t, tt.title)
			for i, arg := range args {
				switch {
				case strings.HasPrefix(arg, "redis://"):
					args[i] = server.URL()
				case i > 0 && args[i-1] == "--secret-file":
					args[i] = filepath.Join(dir, arg)
					write(t, args[i], tt.secret)
				case i > 0 && args[i-1] == "--forgotten-file":
					args[i] = filepath.Join(dir, arg)
				}
			}
			payload := strings.NewReplacer(tt.instead...).Replace(message)
			_, err := newClient(t, server.Client(t), "push").Enqueue(t.Context(), queue.Job{
				Tenant: "school-7", User: "teacher-42", Type: "push", Payload: json.RawMessage(payload),
			})
			must(t, err)
			ca := filepath.Join(dir, "ca.pem")
			write(t, ca, string(tt.host.CA))
			status, _, stderr := work(t, append(append(args, "--inbox=false", "--drain", "--provider-ca", ca), tt.args...)...)
			arrived := 0
			for _, r := range tt.host.Received() {
				if r.Refused == "" && r.Title != "" && r.Title != "check" && tt.arrived(r) {
					arrived++
				}
			}
			if status != 0 || arrived != 1 {
				t.Errorf("status %d, received %+v, refused %q\n%s", status, tt.host.Received(), tt.host.Refusals(), stderr)
			}
		})
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}
