package notify

import (
	"encoding/json"
	"net/http"
	"path"
	"strings"
	"time"
)

const webWait = time.Minute // where a 429 does not say

// classifyWebPush says what an answer of a push service means. The service is whatever
// the subscription names, so its answers concern the subscription, and in numbers its
// origin.
func classifyWebPush(r reply) Outcome {
	var e struct {
		Reason string `json:"reason"` // Apple's
	}
	_ = json.Unmarshal(r.body, &e)
	text := string(r.body)
	o := r.outcome(Retry, "webpush", e.Reason)
	switch {
	case r.status >= 200 && r.status < 300:
		_, id := path.Split(r.header.Get("Location")) // the rest of the URL is a secret
		return r.done(id)
	case r.status == http.StatusNotFound, r.status == http.StatusGone:
		o.Action = Forget
	case strings.Contains(text, "VapidPkHashMismatch"), strings.Contains(text, "do not correspond to the credentials"):
		// The subscription was made with another VAPID key: lost, if not all are.
		o.Action, o.Doubtful = Forget, true
	case r.status == http.StatusUnauthorized, r.status == http.StatusForbidden, e.Reason == "BadJwtToken":
		// A subscription of another VAPID key, where the service says no more; or our
		// signature is wrong, if all say so.
		o.Action, o.Doubtful = Drop, true
	case r.status == http.StatusServiceUnavailable:
		o.Action = Pause
	case r.status == http.StatusTooManyRequests, r.status == http.StatusNotAcceptable:
		// RFC 8030, 8.4: it is about this subscription. Edge's service says 406.
		o.Action = Defer
		if o.After == 0 {
			o.After = webWait
		}
	case r.status == http.StatusRequestTimeout, r.status == http.StatusTooEarly:
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
			return r.done("")
		}
	}
	return o
}
