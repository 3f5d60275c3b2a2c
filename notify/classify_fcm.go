package notify

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// fcmError is what FCM says beside the status. Which field holds the code depends on
// which of Google's layers gave the answer.
type fcmError struct {
	Name  string `json:"name"` // of the message, in a success
	Error struct {
		Status  string `json:"status"`
		Message string `json:"message"`
		Details []struct {
			Type            string `json:"@type"`
			ErrorCode       string `json:"errorCode"`
			Reason          string `json:"reason"`
			FieldViolations []struct {
				Field string `json:"field"`
			} `json:"fieldViolations"`
			Violations []struct {
				Subject     string `json:"subject"`
				Description string `json:"description"`
			} `json:"violations"`
		} `json:"details"`
	} `json:"error"`
}

// code is the most specific code in the answer.
func (e fcmError) code() string {
	code := e.Error.Status
	for _, d := range e.Error.Details {
		if d.ErrorCode != "" {
			return d.ErrorCode
		}
		if d.Reason != "" {
			code = d.Reason
		}
	}
	return code
}

// blamesToken tells whether a bad request is one because of the device's token.
func (e fcmError) blamesToken() bool {
	for _, d := range e.Error.Details {
		for _, v := range d.FieldViolations {
			if v.Field == "message.token" {
				return true
			}
		}
	}
	return strings.Contains(e.Error.Message, "not a valid FCM registration token")
}

// ofDevice tells whether the quota that is used up is a device's or a topic's, and not
// the project's.
func (e fcmError) ofDevice() bool {
	for _, d := range e.Error.Details {
		for _, v := range d.Violations {
			text := strings.ToLower(v.Subject + " " + v.Description)
			if strings.Contains(text, "device") || strings.Contains(text, "topic") {
				return true
			}
		}
	}
	return false
}

const (
	statusCancelled = 499 // Google's CANCELLED; 409 is its ABORTED

	fcmKeyWait   = time.Minute      // until a key may be mended
	fcmQuotaWait = time.Minute      // where a 429 does not say
	fcmErrorWait = 10 * time.Second // FCM: wait at least 10 s after an error of the server
)

// classifyFCM says what an answer of FCM means. A 401 needs to know which access token
// was refused; the sender settles that.
func classifyFCM(r reply) Outcome {
	var e fcmError
	_ = json.Unmarshal(r.body, &e) // a proxy's HTML, say: the status has to do
	code := e.code()
	o := r.outcome(Retry, "fcm", code)
	switch {
	case r.status == http.StatusOK:
		return r.done(e.Name)
	case r.status == http.StatusBadRequest && e.blamesToken():
		o.Action, o.Doubtful = Forget, true
	case code == "SENDER_ID_MISMATCH":
		o.Action, o.Doubtful = Forget, true
	case code == "THIRD_PARTY_AUTH_ERROR":
		// The key for Apple's devices or for browsers is wrong or has expired: Android's are
		// fine, and these will be once the key is mended.
		o.Action, o.Doubtful, o.After = Retry, true, max(o.After, fcmKeyWait)
	case r.status == http.StatusNotFound && code == "UNREGISTERED":
		o.Action = Forget
	case r.status == http.StatusBadRequest, r.status == http.StatusRequestEntityTooLarge:
		o.Action = Drop
	case r.status == http.StatusTooManyRequests && e.ofDevice():
		o.Action, o.After = Defer, max(o.After, fcmQuotaWait)
	case r.status == http.StatusTooManyRequests:
		o.Action = Pause
		if o.After == 0 {
			o.After = fcmQuotaWait
		}
	case r.status == http.StatusServiceUnavailable:
		o.Action = Pause
	case r.status >= 300 && r.status < 500 && r.status != http.StatusRequestTimeout && r.status != http.StatusConflict && r.status != statusCancelled:
		// 401, 403, a 404 without UNREGISTERED, redirects: a wrong
		// project, key or address. No token is to die of that.
		o.Action = Halt
	default:
		o.After = max(o.After, fcmErrorWait)
	}
	return o
}
