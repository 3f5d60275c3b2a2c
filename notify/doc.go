// Package notify turns jobs into notifications.
//
// A [Sender] makes one attempt to deliver one [Message] and says what became of it: an
// [Outcome]. It never repeats and never waits, because that is what the queue does, and
// the queue knows the limits. [Handler] connects the two: it is the handler that a
// worker runs at a job's slot.
//
//	worker.Run(ctx, notify.Handler(notify.NewLog(os.Stdout)))
//
// A job's payload is a message in JSON:
//
//	{
//	  "title": "School is closed",
//	  "body": "Snow. See you on Monday.",
//	  "data": {"screen": "news"},
//	  "collapse_key": "closed",
//	  "expires": "2026-11-21T08:00:00Z",
//	  "targets": ["device-token-1", "device-token-2"]
//	}
//
// Every field may be missing; one of title, body and data must be there. Other fields
// are an error: what nobody reads would be lost without a word.
package notify
