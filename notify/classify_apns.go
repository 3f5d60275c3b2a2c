package notify

import (
	"encoding/json"
	"net/http"
	"time"
)

// apnsAction is what Apple's reasons mean. What is not here is told by the status: those
// that are left refuse our credentials or our topic.
func apnsAction(reason string) (Action, bool) {
	switch reason {
	case "Unregistered", "ExpiredToken", "BadDeviceToken":
		return Forget, true
	case "PayloadEmpty", "PayloadTooLarge", "BadCollapseId", "BadPriority", "BadExpirationDate",
		"BadMessageId", "InvalidPushType", "DuplicateHeaders", "MissingDeviceToken", "DeviceTokenNotForTopic":
		return Drop, true
	case "IdleTimeout", "Shutdown": // only the connection ends
		return Retry, true
	case "TooManyRequests":
		return Defer, true
	case "TooManyProviderTokenUpdates", "InternalServerError", "ServiceUnavailable":
		return Pause, true
	}
	return Halt, false
}

const (
	apnsDeviceWait = time.Minute      // after too many messages to one device
	apnsTokenWait  = 20 * time.Minute // Apple takes a new provider token that often
)

// classifyAPNs says what an answer of APNs means. For ExpiredProviderToken the sender
// has to know how old the token was.
func classifyAPNs(r reply) Outcome {
	var e struct {
		Reason    string `json:"reason"`
		Timestamp int64  `json:"timestamp"`
	}
	_ = json.Unmarshal(r.body, &e) // a proxy's HTML, say: the status has to do
	action, known := apnsAction(e.Reason)
	o := r.outcome(action, "apns", e.Reason)
	switch {
	case r.status == http.StatusOK:
		return r.done(r.header.Get("apns-id"))
	case r.status == http.StatusGone:
		// Apple gives a reason. An answer without one may be that of a proxy.
		o.Action, o.Doubtful = Forget, !known
		if e.Timestamp > 0 {
			o.Since = time.UnixMilli(e.Timestamp)
		}
	case e.Reason == "BadDeviceToken", e.Reason == "DeviceTokenNotForTopic":
		// A token of another build or app; and what every device says when sandbox and
		// production, or two apps, are mixed up.
		o.Doubtful = true
	case e.Reason == "TooManyProviderTokenUpdates":
		o.After = max(o.After, apnsTokenWait)
	case known:
	case r.status == http.StatusRequestEntityTooLarge:
		o.Action = Drop
	case r.status == http.StatusTooManyRequests:
		o.Action = Defer
	case r.status >= 500:
		o.Action = Pause
	}
	if o.Action == Defer && o.After == 0 {
		o.After = apnsDeviceWait
	}
	return o
}
