package notify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/waterclock/waterclock/queue"
)

// A Message is what a user is to see, on all of the user's devices: however many these
// are, it is one job and takes one place in the user's window.
type Message struct {
	// ID is the same in every attempt and nowhere else. Endpoints recognise a repetition
	// by it. The handler makes it the job's.
	ID string `json:"-"`

	Title string            `json:"title,omitempty"`
	Body  string            `json:"body,omitempty"`
	Data  map[string]string `json:"data,omitempty"` // for the app

	// Sound is what is played: the name of a file in the app, or "default". Apple's
	// devices are silent without it. Android 8 and later ask the app's channel instead.
	Sound string `json:"sound,omitempty"`

	// Badge is the number on the app's icon. 0 takes it away, nil leaves it as it is.
	Badge *int `json:"badge,omitempty"`

	// Image is the https URL of a picture. On Apple's devices the app's notification
	// service extension has to fetch it.
	Image string `json:"image,omitempty"`

	// CollapseKey lets a device show only the newest of the messages that have it.
	CollapseKey string `json:"collapse_key,omitempty"`

	// Expires is when the message stops being worth sending: it is dropped then, by the
	// provider too. The zero time means never.
	Expires time.Time `json:"expires,omitzero"`

	// Priority is how much a device is to be disturbed. Defaults to Normal.
	Priority Priority `json:"priority,omitempty"`

	// ChannelID is the Android app's notification channel. Android 8 and later take from it
	// sound and importance; without it messages land in the channel "Miscellaneous".
	ChannelID string `json:"channel_id,omitempty"`

	// Category names the buttons that an Apple app has defined for such messages.
	Category string `json:"category,omitempty"`

	// ThreadID groups messages on Apple's devices.
	ThreadID string `json:"thread_id,omitempty"`

	// InterruptionLevel is Apple's: passive, active, time-sensitive or critical.
	InterruptionLevel string `json:"interruption_level,omitempty"`

	// ClickAction is what a tap opens: in Android the intent filter of an activity, in
	// browsers a URL.
	ClickAction string `json:"click_action,omitempty"`

	// Tag replaces a message with the same tag that is shown on Android or in a browser.
	// Defaults to CollapseKey.
	Tag string `json:"tag,omitempty"`

	// Android, APNs and WebPush are merged over what the senders write for a platform.
	// They have the form of FCM's AndroidConfig, ApnsConfig and WebpushConfig, also for
	// the senders to Apple and to browsers. null takes a field away.
	Android map[string]any `json:"android,omitempty"`
	APNs    map[string]any `json:"apns,omitempty"`
	WebPush map[string]any `json:"webpush,omitempty"`

	// Targets are the user's devices.
	Targets []Target `json:"targets,omitempty"`
}

// LogValue hides the targets' tokens.
func (m Message) LogValue() slog.Value { return slog.StringValue(fmt.Sprintf("%+v", m)) }

// Priority says how much a message may disturb a device that sleeps.
type Priority string

const (
	Normal Priority = "normal" // soon, as the battery allows
	High   Priority = "high"   // at once: somebody waits for it
	Low    Priority = "low"    // when the device is awake anyway
)

// maxTargets bounds the devices of a message: each is a request.
const maxTargets = 100

// check returns what is wrong with a message.
func (m Message) check() error {
	switch {
	case m.silent() && len(m.Data) == 0 && m.Badge == nil && len(object(m.APNs, "payload")) == 0:
		return fmt.Errorf("%w: it has no title, no body, no data, no badge and no apns.payload; want one of them", ErrNotMessage)
	case m.silent() && (m.Sound != "" || m.Image != ""):
		return fmt.Errorf("%w: a sound or an image without anything to show; want a title or a body too", ErrNotMessage)
	case m.Badge != nil && *m.Badge < 0:
		return fmt.Errorf("%w: badge %d; want 0 or more", ErrNotMessage, *m.Badge)
	case m.Image != "" && !isHTTPS(m.Image):
		return fmt.Errorf("%w: image: want a https URL", ErrNotMessage)
	case m.Priority != "" && m.Priority != Normal && m.Priority != High && m.Priority != Low:
		return fmt.Errorf("%w: priority %q; want high, normal or low", ErrNotMessage, m.Priority)
	case len(m.Targets) > maxTargets:
		return fmt.Errorf("%w: %d targets; want at most %d, all of one user", ErrNotMessage, len(m.Targets), maxTargets)
	}
	return m.checkPlatforms()
}

// silent reports whether the message shows nothing: it has only data for the app, or a badge.
func (m Message) silent() bool { return m.Title == "" && m.Body == "" }

func isHTTPS(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && u.Host != ""
}

// ttl returns for how long from now on the message is worth keeping, in whole seconds,
// at most `most`, which is also what a message without an end gets.
func (m Message) ttl(now time.Time, most time.Duration) int64 {
	if m.Expires.IsZero() {
		return int64(most.Seconds())
	}
	return int64(max(0, min(m.Expires.Sub(now), most)).Seconds())
}

// NewJob returns the job that delivers the message to a user of a tenant: its collapse
// key counts in the user's lane too, its end is the job's StartBy, its priority the
// job's. ID and Type ("push") may be changed.
//
// Its Keys and Costs are for limits by name. The keys are provider ("fcm"), route ("fcm", or "apns/com.example.app" of a
// target with an app), and a fingerprint of the target: endpoint of a webhook, device of any other. A route of browsers
// is their push service, of a webhook its endpoint. A key on which the targets do not agree is not set, nor are provider
// and route for a token that says no provider. The costs are the numbers of devices, in a unit for each provider.
func NewJob(tenant, user string, m Message) (queue.Job, error) {
	if err := m.check(); err != nil {
		return queue.Job{}, err
	}
	if size := fcmSize(m); size > maxPayload && m.onlyPush() {
		return queue.Job{}, fmt.Errorf("%w: it has %d bytes; fcm, apns and webpush take at most %d", ErrNotMessage, size, maxPayload)
	}
	payload, err := json.Marshal(m)
	if err != nil {
		return queue.Job{}, fmt.Errorf("%w: %w", ErrNotMessage, err)
	}
	priority := map[Priority]queue.Priority{High: queue.High, Low: queue.Low}[m.Priority]
	return queue.Job{
		Tenant: tenant, User: user, Type: "push", Payload: payload,
		CollapseKey: m.CollapseKey, StartBy: m.Expires, Priority: priority,
		Keys: keysOf(m.Targets), Costs: costsOf(m.Targets),
	}, nil
}

// onlyPush tells whether all targets say that they are for providers with a bound on the size.
func (m Message) onlyPush() bool {
	for _, to := range m.Targets {
		if to.P256dh == "" && to.Provider != "fcm" && to.Provider != "apns" && to.Provider != "webpush" {
			return false
		}
	}
	return len(m.Targets) > 0
}

// ErrNotMessage is returned when a payload is not the JSON of a [Message].
var ErrNotMessage = errors.New("notify: not a message")

// ParseMessage reads a job's payload. Its errors wrap [ErrNotMessage].
func ParseMessage(payload []byte) (Message, error) {
	if !bytes.HasPrefix(bytes.TrimLeft(payload, " \t\r\n"), []byte("{")) {
		return Message{}, fmt.Errorf(`%w: want an object such as {"title":"Hello"}`, ErrNotMessage)
	}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.DisallowUnknownFields()
	var m Message
	if err := decoder.Decode(&m); err != nil {
		if isUnknown(err) {
			return Message{}, fmt.Errorf("%w: %w", ErrNotMessage, unknownField(explain(err)))
		}
		return Message{}, fmt.Errorf("%w: %s", ErrNotMessage, explain(err))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Message{}, fmt.Errorf("%w: something follows the object", ErrNotMessage)
	}
	if err := m.check(); err != nil {
		return Message{}, err
	}
	return m, nil
}

// An unknownField is the error of a message with a field that this version does not know.
// A newer one may.
type unknownField string

func (f unknownField) Error() string { return string(f) }

// isUnknown tells whether the JSON has a field too many.
func isUnknown(err error) bool {
	var unknown unknownField
	return errors.As(err, &unknown) || strings.HasPrefix(err.Error(), "json: unknown field ")
}

// explain says in the words of JSON what encoding/json says in those of Go.
func explain(err error) string {
	var wrong *json.UnmarshalTypeError
	var when *time.ParseError
	switch {
	case errors.Is(err, errTarget), strings.HasPrefix(err.Error(), "targets: "):
		return err.Error()
	case errors.As(err, &wrong):
		want := "an object"
		switch wrong.Type.Kind() {
		case reflect.String:
			want = "a string"
		case reflect.Slice:
			want = "a list"
		case reflect.Int:
			want = "a whole number"
		}
		have := strings.NewReplacer("array", "list", "object", "mapping").Replace(wrong.Value)
		return fmt.Sprintf("%s: a %s; want %s", wrong.Field, have, want)
	case errors.As(err, &when), strings.HasPrefix(err.Error(), "Time."):
		return "expires: want a time such as 2026-11-21T08:00:00Z"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the JSON ends too soon"
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if field, found := strings.CutPrefix(text, "unknown field "); found {
		return "unknown field " + field + "; want " + fieldNames()
	}
	return text
}

// fieldNames lists the fields of a message, for errors.
func fieldNames() string {
	var names []string
	for field := range reflect.TypeFor[Message]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" {
			names = append(names, name)
		}
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
