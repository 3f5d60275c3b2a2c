package notify

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A reply is a provider's answer, as the classify functions read it: they are pure, and
// hold all that this package knows about what answers mean.
type reply struct {
	status int
	header http.Header
	body   []byte
	now    time.Time
}

const (
	maxReply       = 16 << 10 // bytes read of an answer; the rest is not looked at
	maxReplyHeader = 64 << 10 // bytes of its header; a longer one is no answer
	maxRetryAfter  = 24 * time.Hour
)

// retryAfter returns how long the provider asks to wait, or 0 if it does not say. Of a
// date, the difference to the provider's own clock counts, if it tells that.
func (r reply) retryAfter() time.Duration {
	text := strings.TrimSpace(r.header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	now := r.now
	if date, err := http.ParseTime(r.header.Get("Date")); err == nil {
		now = date
	}
	return max(0, min(at.Sub(now), maxRetryAfter))
}

// outcome is what the reply means, said with the provider's own code for it.
func (r reply) outcome(action Action, provider, code string) Outcome {
	o := Outcome{Action: action, After: r.retryAfter(), Status: r.status}
	if action != Done {
		o.Err = &ProviderError{Provider: provider, Status: r.status, Code: word(code)}
	}
	return o
}

// done is a success, with the provider's own name for the message.
func (r reply) done(id string) Outcome {
	if len(id) > maxID {
		id = ""
	}
	return Outcome{Action: Done, Status: r.status, ID: id}
}

const maxID = 512 // bytes of a provider's name for a message

// A ProviderError is what a provider answered. It quotes nothing of the answer but its
// code, since answers may repeat what nobody else is to see.
type ProviderError struct {
	Provider string // "fcm", "apns", "webpush" or "webhook"
	Status   int    // of HTTP
	Code     string // the provider's, as UNREGISTERED or BadDeviceToken; may be empty
}

func (e *ProviderError) Error() string {
	text := fmt.Sprintf("notify: %s answered %d", e.Provider, e.Status)
	if name := http.StatusText(e.Status); name != "" {
		text += " " + name
	}
	if e.Code != "" {
		text += ", " + e.Code
	}
	return text
}

// word returns a code if it looks like one.
func word(s string) string {
	if len(s) > 64 {
		return ""
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '_' {
			return ""
		}
	}
	return s
}

// errLocal is wrapped by what is wrong with a message before anything was sent.
var errLocal = errors.New("notify: not sent")

func unsendable(why string) Outcome {
	return Outcome{Action: Drop, Err: fmt.Errorf("%w: %s", errLocal, why)}
}
