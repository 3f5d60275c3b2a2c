package notify_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
)

// A worker delivers messages through FCM: here one that runs on this machine.
func ExampleNewHandler() {
	google, err := notifytest.NewFCM(notifytest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer google.Close()
	server, err := miniredis.Run()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	sender, err := notify.NewFCM(notify.FCMConfig{
		Credentials: google.ServiceAccount,
		Redis:       rdb,
		Wire:        notify.Wire{URL: google.URL, RootCAs: google.RootCAs, Dial: google.Dial}, // not for the real one
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sender.Close()
	handler, err := notify.NewHandler(sender, notify.HandlerConfig{Redis: rdb, Shared: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	worker, err := queue.NewWorker(rdb, queue.WorkerConfig{Queues: []string{"push"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	google.Answer(func(r notifytest.Received) *notifytest.Answer {
		fmt.Println(r.Device, "shows:", r.Title)
		stop()
		return nil
	})

	job, err := notify.NewJob("school-7", "teacher-42", notify.Message{
		Title: "School is closed", Priority: notify.High, Targets: []notify.Target{{Token: "phone"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := queue.NewClient(rdb, "push")
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := client.Enqueue(ctx, job); err != nil {
		fmt.Println(err)
		return
	}
	if err := worker.Run(ctx, handler); err != nil {
		fmt.Println(err)
	}
	// Output: phone shows: School is closed
}

// One key sends to all apps of a team; a target says to which its device belongs.
func ExampleNewAPNs() {
	apple, err := notifytest.NewAPNs(notifytest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer apple.Close()
	apple.Topics = []string{"com.example.parents"}

	sender, err := notify.NewAPNs(notify.APNsConfig{
		Key: apple.Key, KeyID: apple.KeyID, TeamID: apple.TeamID, // of AuthKey_ABC123DEFG.p8
		Topic: "com.example.school", Topics: []string{"com.example.parents"},
		Wire: notify.Wire{URL: apple.URL, RootCAs: apple.RootCAs, Dial: apple.Dial}, // not for the real one
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sender.Close()
	m := notify.Message{ID: "1", Title: "School is closed", InterruptionLevel: "time-sensitive"}
	for _, app := range []string{"", "com.example.parents"} {
		o := sender.Send(context.Background(), m, notify.Target{Token: "0123456789abcdef", App: app})
		fmt.Println(o.Action)
	}
	for _, r := range apple.Received() {
		fmt.Println(r.Topic, r.Title)
	}
	// Output:
	// done
	// done
	// com.example.school School is closed
	// com.example.parents School is closed
}

// A browser's subscription comes from pushManager.subscribe, as JSON.
func ExampleNewWebPush() {
	service, err := notifytest.NewWebPush(notifytest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer service.Close()
	browser, err := service.Subscribe("browser")
	if err != nil {
		fmt.Println(err)
		return
	}

	sender, err := notify.NewWebPush(notify.WebPushConfig{
		Key: service.Key, Subject: "mailto:push@school.example",
		Wire: notify.Wire{URL: service.URL, RootCAs: service.RootCAs, Dial: service.Dial}, // not for the real one
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sender.Close()
	o := sender.Send(context.Background(), notify.Message{
		ID: "1", Title: "School is closed", Priority: notify.High, Expires: time.Now().Add(time.Hour),
	}, notify.Target{Token: browser.Endpoint, P256dh: browser.P256dh, Auth: browser.Auth})
	fmt.Println(o.Action)
	r := service.Received()[0]
	fmt.Println(r.Title, "urgency", r.Urgency)
	// Output:
	// done
	// School is closed urgency high
}

// Each endpoint has a secret of its own, as Standard Webhooks wants it.
func ExampleNewWebhook() {
	customer, err := notifytest.NewWebhook(notifytest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer customer.Close()

	sender, err := notify.NewWebhook(notify.WebhookConfig{
		Wire: notify.Wire{RootCAs: customer.RootCAs, Dial: customer.Dial}, // not for a real one
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sender.Close()
	o := sender.Send(context.Background(), notify.Message{ID: "order-17", Title: "Paid"},
		notify.Target{Token: customer.URL + "/hooks", Secret: customer.Secret})
	fmt.Println(o.Action, customer.Received()[0].ID)
	// Output: done order-17
}

// One worker serves an iPhone and an Android phone of a user, with one set of limits.
func ExampleNewProviders() {
	apple, err := notifytest.NewAPNs(notifytest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer apple.Close()
	google, err := notifytest.NewFCM(notifytest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer google.Close()

	apns, err := notify.NewAPNs(notify.APNsConfig{
		Key: apple.Key, KeyID: apple.KeyID, TeamID: apple.TeamID, Topic: apple.Topic,
		Wire: notify.Wire{URL: apple.URL, RootCAs: apple.RootCAs, Dial: apple.Dial}, // not for the real one
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer apns.Close()
	fcm, err := notify.NewFCM(notify.FCMConfig{
		Credentials: google.ServiceAccount,
		Wire:        notify.Wire{URL: google.URL, RootCAs: google.RootCAs, Dial: google.Dial}, // not for the real one
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer fcm.Close()
	all, err := notify.NewProviders(
		notify.Provider{Sender: apns},
		notify.Provider{Sender: fcm},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, to := range []notify.Target{
		{Provider: "apns", Token: "0123456789abcdef"},
		{Provider: "fcm", Token: "phone"},
		{Provider: "apns", Token: "phone"},
	} {
		o := all.Send(context.Background(), notify.Message{ID: "1", Title: "School is closed"}, to)
		fmt.Println(o.Action, o.Err)
	}
	fmt.Println(len(apple.Received()), "for Apple,", len(google.Received()), "for Google")
	// Output:
	// done <nil>
	// done <nil>
	// drop notify: not sent: the target is not one of apns: want a device's token in hexadecimal
	// 1 for Apple, 1 for Google
}
