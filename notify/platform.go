package notify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// The raw objects of a message, Message.Android, APNs and WebPush, have the form of FCM's
// HTTP v1: https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages
//
// The senders to Apple and to browsers read the same objects, so that a message looks the
// same whichever way it goes.

// interruptionLevels are Apple's. Empty leaves the choice to the device.
var interruptionLevels = []string{"", "passive", "active", "time-sensitive", "critical"}

// checkPlatforms returns what is wrong with the fields for single platforms.
func (m Message) checkPlatforms() error {
	if !slices.Contains(interruptionLevels, m.InterruptionLevel) {
		return fmt.Errorf("%w: interruption_level %q; want passive, active, time-sensitive or critical", ErrNotMessage, m.InterruptionLevel)
	}
	for name, raw := range map[string]map[string]any{"android": m.Android, "apns": m.APNs, "webpush": m.WebPush} {
		headers, given := raw["headers"]
		if !given {
			continue
		}
		fields, ok := headers.(map[string]any)
		for _, value := range fields {
			_, text := value.(string)
			ok = ok && text
		}
		if !ok || name == "android" {
			return fmt.Errorf("%w: %s.headers: want an object of strings, in apns and webpush alone", ErrNotMessage, name)
		}
	}
	return nil
}

// merge returns an object with another merged over it: objects field by field, lists and
// values replaced, and null takes a field away.
func merge(under, over map[string]any) map[string]any {
	all := make(map[string]any, len(under)+len(over))
	maps.Copy(all, under)
	for name, value := range over {
		if value == nil {
			delete(all, name)
			continue
		}
		object, isObject := value.(map[string]any)
		if !isObject {
			all[name] = value
			continue
		}
		below, _ := all[name].(map[string]any)
		all[name] = merge(below, object)
	}
	return all
}

// object returns a field of a raw object, and nil if that is not an object.
func object(raw map[string]any, name string) map[string]any {
	field, _ := raw[name].(map[string]any)
	return field
}

// fields returns an object without what is empty.
func fields(all map[string]any) map[string]any {
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == "" || value == nil })
	return all
}

// toJSON writes JSON as providers count it: & < > are one byte each, not six.
func toJSON(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("%w: %w", errLocal, err)
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// maxPayload is in bytes: Apple's bound, FCM's, and that of the push services.
const maxPayload = 4096

// bounded is the JSON of a payload, if providers take that much.
func bounded(payload any) ([]byte, error) {
	text, err := toJSON(payload)
	if err == nil && len(text) > maxPayload {
		err = errTooLong(len(text))
	}
	return text, err
}

func errTooLong(size int) error {
	return fmt.Errorf("%w: the message has %d bytes; at most %d", errLocal, size, maxPayload)
}
