package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	testsample "github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
)

const phone, tablet = "0123456789abcdef", "fedcba9876543210"

func written(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// playAtApple is playAt, as if the provider were Apple.
func playAtApple(t *testing.T, apple *notifytest.APNs) (text string, err error) {
	t.Helper()
	return playAt(t, &apple.Host, apple.Key, "--apns-targets",
		"--apns-key-id", apple.KeyID, "--apns-team-id", apple.TeamID, "--apns-topic", apple.Topic)
}

// playAt tells the story with a phone and a tablet behind a provider, and returns what
// was printed.
func playAt(t *testing.T, host *notifytest.Host, secret []byte, flag string, args ...string) (text string, err error) {
	t.Helper()
	o, _, err := parseFlags(append([]string{
		"--parents", "10", flag, written(t, phone+"\n\n"+`{"token":"`+tablet+`"}`),
		"--secret-file", written(t, string(secret)), "--provider-url", host.URL, "--provider-ca", written(t, string(host.CA)),
	}, args...), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.senders.Dial = host.Dial
	var out strings.Builder
	err = play(t.Context(), o, &out, &out)
	for _, secret := range []string{phone, tablet, "PRIVATE KEY"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("a secret is printed: %s", secret)
		}
	}
	return out.String(), err
}

// Your own devices get what the busy teacher would, through their provider, which may ask
// to wait; the verdict has it from the log of deliveries.
func TestYourDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		apple, err := notifytest.NewAPNs(notifytest.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer apple.Close()
		asked := false
		apple.Answer(func(r notifytest.Received) *notifytest.Answer {
			if r.Device == tablet && !asked {
				asked = true
				return notifytest.TooMany(5 * time.Second)
			}
			return nil
		})
		text, err := playAtApple(t, apple)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		for _, want := range []string{
			"apns       a user's 10 in any 2.94s           10 at most: teacher-42 at birch",
			"apns       no message twice on a device       50 messages delivered",
			"apns       nothing while it asks to wait      101 requests in all",
			"All 21 limits were kept.",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the output lacks %q", want)
			}
		}
		arrivedAtYours(t, &apple.Host)
		if t.Failed() {
			t.Log(text)
		}
	})
}

// Google's stand-in gives an access token first; the rest is the same.
func TestYourDevicesBehindFCM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		google, err := notifytest.NewFCM(notifytest.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer google.Close()
		text, err := playAt(t, &google.Host, google.ServiceAccount, "--fcm-targets")
		if err != nil || !strings.Contains(text, "All 21 limits were kept.") {
			t.Errorf("%v\n%s", err, text)
		}
		arrivedAtYours(t, &google.Host)
	})
}

// arrivedAtYours checks that both devices got everything, and that nothing was wrong with it.
func arrivedAtYours(t *testing.T, host *notifytest.Host) {
	t.Helper()
	got := map[string]int{}
	for _, r := range host.Received() {
		if r.Status == 200 && strings.HasPrefix(r.Title, "birch: ") && r.Body == "for "+busyTeacher {
			got[r.Device]++
		}
	}
	if got[phone] != 50 || got[tablet] != 50 || len(host.Refusals()) > 0 {
		t.Errorf("arrived %v, want 50 on each; refused %q", got, host.Refusals())
	}
}

// A provider that does not take the key, or asks for more time than the story has, ends
// it with the reason. A device that is gone is found by the verdict.
func TestYourProviderRefuses(t *testing.T) {
	testsample.Slow(t)
	for _, tt := range []struct {
		answer *notifytest.Answer
		want   string
	}{
		{notifytest.Reason(403, "InvalidProviderToken"), "stopped after 4 s: notify: apns answered 403 Forbidden, InvalidProviderToken"},
		{notifytest.Reason(429, "TooManyProviderTokenUpdates"), "TooManyProviderTokenUpdates, which asks to wait 20m0s"},
		{notifytest.Gone(time.Now()), "a limit was broken: 1 of 21"},
	} {
		synctest.Test(t, func(t *testing.T) {
			apple, err := notifytest.NewAPNs(notifytest.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer apple.Close()
			apple.Answer(func(notifytest.Received) *notifytest.Answer { return tt.answer })
			text, err := playAtApple(t, apple)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q\n%s", err, tt.want, text)
			}
		})
	}
}

// What is wrong is found in the log of deliveries, whatever the queue believes.
func TestTheLogOfDeliveriesShowsWhatIsWrong(t *testing.T) {
	begin := time.UnixMilli(0)
	at := func(ms int, n int, o notify.Outcome) delivery {
		from := begin.Add(time.Duration(ms) * time.Millisecond)
		return delivery{n: n, from: from, until: from.Add(10 * time.Millisecond), outcome: o}
	}
	done := notify.Outcome{Action: notify.Done}
	wait := notify.Outcome{Action: notify.Pause, After: time.Second, Err: errors.New("wait")}
	for _, tt := range []struct {
		limit string
		log   []delivery
	}{
		{"", []delivery{at(0, 1, done), at(200, 2, wait), at(1300, 2, done)}},
		{"no message twice on a device", []delivery{at(0, 1, done), at(200, 1, done)}},
		{"nothing while it asks to wait", []delivery{at(0, 1, wait), at(500, 1, done)}},
		{"every message taken in the end", []delivery{at(0, 1, wait)}},
		{"90ms between a user's", []delivery{at(0, 1, done), at(80, 2, done)}},
	} {
		y := &yours{provider: "apns", deliveries: tt.log}
		for _, r := range y.rulings() {
			if broken := len(r.broken) > 0; broken != (r.limit == tt.limit) {
				t.Errorf("%s of %v: broken %q", r.limit, tt.log, r.broken)
			}
		}
	}
}

func TestReadTargets(t *testing.T) {
	for text, want := range map[string]string{
		"\n": "no device in it",
		"a\n{\"token\":\"b\",\"key\":\"s3cr3t\"}": "line 2: targets: want tokens",
	} {
		_, err := readTargets(written(t, text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
	targets, err := readTargets(written(t, "a\n"+`{"endpoint":"https://push.example/1","keys":{"p256dh":"k","auth":"s"}}`))
	if err != nil || len(targets) != 2 || targets[0].Token != "a" || targets[1].Auth != "s" {
		t.Errorf("%d targets, %v", len(targets), err)
	}
}
