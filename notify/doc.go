// Package notify turns jobs into notifications.
//
// A [Sender] makes one attempt to deliver one [Message] and says what became of it: an
// [Outcome]. It never repeats and never waits, because that is what the queue does, and
// the queue knows the limits. [Handler] connects the two: it is the handler that a
// worker runs at a job's slot.
//
//	sender, err := notify.NewFCM(notify.FCMConfig{Credentials: account, Redis: rdb})
//	...
//	handler, err := notify.NewHandler(sender, notify.HandlerConfig{Redis: rdb, Shared: true})
//	...
//	worker.Run(ctx, handler)
//
// There are senders to [FCM], [APNs], browsers ([WebPush]) and endpoints ([Webhook]).
// Package notifytest has providers to try them on.
//
// A job's payload is a message in JSON:
//
//	{
//	  "title": "School is closed",
//	  "body": "Snow. See you on Monday.",
//	  "data": {"screen": "news"},
//	  "sound": "default",
//	  "badge": 3,
//	  "image": "https://school.example/snow.jpg",
//	  "collapse_key": "closed",
//	  "expires": "2026-11-21T08:00:00Z",
//	  "priority": "high",
//	  "targets": ["device-token-1", "device-token-2"]
//	}
//
// Every field may be missing; one of title, body, data and badge must be there. [Message] has
// further fields for single platforms, and objects that are merged over what the senders
// write. Unknown fields are an error, so that a misspelt one is noticed.
package notify
