package notify

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

const webWait = time.Minute // where a 429 does not say

// classifyWebPush says what an answer of a push service means. Its pauses are for the
// service at one origin; to the queue they are deferrals of the user who is there.
func classifyWebPush(r reply) Outcome {
	var e struct {
		Reason string `json:"reason"` // Apple's
	}
	_ = json.Unmarshal(r.body, &e)
	text := string(r.body)
	o := r.outcome(Retry, "webpush", e.Reason)
	switch {
	case r.status >= 200 && r.status < 300:
		return Outcome{Action: Done}
	case r.status == http.StatusNotFound, r.status == http.StatusGone:
		o.Action = Forget
	case strings.Contains(text, "VapidPkHashMismatch"), strings.Contains(text, "do not correspond to the credentials"):
		// The subscription was made with another VAPID key: lost, if not all are.
		o.Action, o.Doubtful = Forget, true
	case r.status == http.StatusUnauthorized, r.status == http.StatusForbidden, e.Reason == "BadJwtToken":
		o.Action = Halt
	case r.status == http.StatusTooManyRequests, r.status == http.StatusServiceUnavailable:
		o.Action = Defer
		if o.After == 0 {
			o.After = webWait
		}
	case r.status >= 300 && r.status < 500:
		o.Action = Drop
	}
	return o
}

// classifyWebhook says what an answer of an endpoint means, as Standard Webhooks has it.
func classifyWebhook(r reply) Outcome {
	o := r.outcome(Retry, "webhook", "")
	switch r.status {
	case http.StatusGone:
		o.Action = Forget
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		o.Action = Defer
		if o.After == 0 {
			o.After = webWait
		}
	default:
		if r.status >= 200 && r.status < 300 {
			return Outcome{Action: Done}
		}
	}
	return o
}
