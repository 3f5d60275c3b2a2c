package notify

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// A Target is one of a user's devices, or one endpoint. In JSON it is a string, the
// token; or an object {"token", "app", "registered_at"}; or the PushSubscription that a
// browser's toJSON gives, {"endpoint", "keys": {"p256dh", "auth"}}; or a webhook's
// {"endpoint", "secret"}. Where messages go through several providers an object says its
// "provider" too.
//
// Whoever knows a target can send to it, so it never appears in logs and errors.
type Target struct {
	// Provider is who the target is for where there are several: fcm, apns, webpush or
	// webhook. Empty leaves it to what the target looks like.
	Provider string

	// App says which of a provider's apps the device belongs to, where there are several:
	// for Apple a topic. Empty means the first.
	App string

	// Token is FCM's or Apple's token of the device, or the URL of an endpoint.
	Token string

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

// Format hides the token, whatever the verb.
func (t Target) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, t.String()) }

// LogValue hides the token.
func (Target) LogValue() slog.Value { return slog.StringValue("[target]") }

// device is what names the device, whatever else is known of it.
func (t Target) device() Target { return Target{Provider: t.Provider, App: t.App, Token: t.Token} }

// fingerprint names a target where its token must not appear.
func fingerprint(t Target) string {
	sum := sha256.Sum256([]byte(t.Token))
	return hex.EncodeToString(sum[:6])
}

// targetJSON is a target as an object.
type targetJSON struct {
	Provider       string        `json:"provider,omitempty"`
	App            string        `json:"app,omitempty"`
	Token          string        `json:"token,omitempty"`
	Registered     time.Time     `json:"registered_at,omitzero"`
	Endpoint       string        `json:"endpoint,omitempty"`
	ExpirationTime *float64      `json:"expirationTime,omitempty"` // browsers give it, mostly null
	Keys           *targetSecret `json:"keys,omitempty"`
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
	o := targetJSON{Provider: t.Provider, App: t.App, Token: t.Token, Registered: t.Registered, Secret: t.Secret}
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
		if isUnknown(err) {
			return unknownField(errTarget.Error())
		}
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
	*t = Target{Provider: o.Provider, App: o.App, Token: o.Token + o.Endpoint, Registered: o.Registered, Secret: o.Secret}
	if o.Keys != nil {
		t.P256dh, t.Auth = o.Keys.P256dh, o.Keys.Auth
	}
	keys := t.P256dh != "" && t.Auth != ""
	if o.Endpoint == "" && o.Keys != nil || o.Endpoint != "" && !keys && (t.Secret == "" || o.Keys != nil) {
		return fmt.Errorf("targets: a push subscription needs both keys, p256dh and auth; a webhook's endpoint a secret; a token neither")
	}
	return nil
}
