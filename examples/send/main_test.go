package main

import (
	"strings"
	"testing"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
)

func TestSend(t *testing.T) {
	google, err := notifytest.NewFCM(notifytest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer google.Close()
	config := notify.FCMConfig{
		Credentials: google.ServiceAccount, Wire: notify.Wire{URL: google.URL, RootCAs: google.RootCAs, Dial: google.Dial},
	}
	if err := send(config, notify.Target{Token: "phone"}, notify.Message{Title: "Hello"}); err != nil {
		t.Fatal(err)
	}
	all := google.Received()
	if len(all) != 1 || all[0].Device != "phone" || all[0].Title != "Hello" {
		t.Errorf("received %+v", all)
	}
	google.Answer(func(notifytest.Received) *notifytest.Answer { return notifytest.Unregistered() })
	if err := send(config, notify.Target{Token: "gone"}, notify.Message{Title: "Hello"}); err == nil || !strings.Contains(err.Error(), "UNREGISTERED") {
		t.Errorf("a device that is gone: %v", err)
	}
	if err := send(notify.FCMConfig{Credentials: []byte("{}")}, notify.Target{}, notify.Message{}); err == nil {
		t.Error("no service account, and no error")
	}
}
