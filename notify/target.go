package notify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// A Target is one of a user's devices, or one endpoint. In JSON it is a string, the
// token; or an object {"token", "app", "registered_at"}; or the PushSubscription that a
// browser's toJSON gives, {"endpoint", "keys": {"p256dh", "auth"}}; or a webhook's
// {"endpoint", "secret"}.
//
// Whoever knows a target can send to it, so it never appears in logs and errors.
type Target struct {
	// Token is FCM's or Apple's token of the device, or the URL of an endpoint.
	Token string

	// App says to which of a sender's apps the device belongs: for Apple a topic. Empty
	// means the sender's first.
	App string

	// Secret signs the requests to a webhook endpoint, and is its alone: "whsec_" and
	// base64, or several with spaces between while the receiver changes to another.
	Secret string

	// P256dh and Auth are the keys of a Web Push subscription, in base64.
	P256dh, Auth string

	// Registered is when the app last saw the token, if it knows. A token that was
	// registered after the provider saw it die is alive again.
	Registered time.Time
}

// String hides the token.
func (Target) String() string { return "[target]" }

// GoString hides the token.
func (Target) GoString() string { return "[target]" }

// LogValue hides the token.
func (Target) LogValue() slog.Value { return slog.StringValue("[target]") }

// targetJSON is a target as an object.
type targetJSON struct {
	Token          string        `json:"token,omitempty"`
	Registered     time.Time     `json:"registered_at,omitzero"`
	Endpoint       string        `json:"endpoint,omitempty"`
	ExpirationTime *float64      `json:"expirationTime,omitempty"` // browsers give it, mostly null
	Keys           *targetSecret `json:"keys,omitempty"`
	App            string        `json:"app,omitempty"`
	Secret         string        `json:"secret,omitempty"`
}

type targetSecret struct {
	P256dh string `json:"p256dh"`
	Auth   string `json:"auth"`
}

// MarshalJSON writes the shortest form.
func (t Target) MarshalJSON() ([]byte, error) {
	if t == (Target{Token: t.Token}) {
		return json.Marshal(t.Token)
	}
	o := targetJSON{Token: t.Token, Registered: t.Registered, App: t.App, Secret: t.Secret}
	if t.P256dh != "" || t.Auth != "" {
		o.Keys = &targetSecret{t.P256dh, t.Auth}
	}
	if o.Keys != nil || t.Secret != "" {
		o.Token, o.Endpoint = "", t.Token
	}
	return json.Marshal(o)
}

// UnmarshalJSON reads all forms.
func (t *Target) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte(`"`)) {
		var token string
		if err := json.Unmarshal(text, &token); err != nil {
			return err
		}
		return t.set(targetJSON{Token: token})
	}
	var o targetJSON
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&o); err != nil {
		return errTarget
	}
	return t.set(o)
}

// errTarget says nothing about the target that was given: it may hold a token.
var errTarget = errors.New(`targets: want tokens, or objects such as {"token", "app", "registered_at"}, ` +
	`{"endpoint", "keys": {"p256dh", "auth"}} or {"endpoint", "secret"}`)

func (t *Target) set(o targetJSON) error {
	if (o.Token == "") == (o.Endpoint == "") {
		return errTarget
	}
	*t = Target{Token: o.Token + o.Endpoint, Registered: o.Registered, App: o.App, Secret: o.Secret}
	if o.Keys != nil {
		t.P256dh, t.Auth = o.Keys.P256dh, o.Keys.Auth
	}
	keys := t.P256dh != "" && t.Auth != ""
	if o.Endpoint == "" && o.Keys != nil || o.Endpoint != "" && !keys && (t.Secret == "" || o.Keys != nil) {
		return fmt.Errorf("targets: a push subscription needs both keys, p256dh and auth; a webhook's endpoint a secret; a token neither")
	}
	return nil
}
