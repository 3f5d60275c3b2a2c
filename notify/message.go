package notify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
)

// A Message is what a user is to see.
type Message struct {
	Title string            `json:"title,omitempty"`
	Body  string            `json:"body,omitempty"`
	Data  map[string]string `json:"data,omitempty"` // for the app

	// CollapseKey lets a device show only the newest of the messages that have it.
	CollapseKey string `json:"collapse_key,omitempty"`

	// Expires is when the message has lost its point: it is dropped then, by the
	// provider too. The zero time means never.
	Expires time.Time `json:"expires,omitzero"`

	// Targets are the user's devices as the sender knows them: tokens, addresses, URLs.
	Targets []string `json:"targets,omitempty"`
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
		return Message{}, fmt.Errorf("%w: %s", ErrNotMessage, explain(err))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Message{}, fmt.Errorf("%w: something follows the object", ErrNotMessage)
	}
	if m.Title == "" && m.Body == "" && len(m.Data) == 0 {
		return Message{}, fmt.Errorf("%w: it has no title, no body and no data; want one of them", ErrNotMessage)
	}
	return m, nil
}

// explain says in the words of JSON what encoding/json says in those of Go.
func explain(err error) string {
	var wrong *json.UnmarshalTypeError
	var when *time.ParseError
	switch {
	case errors.As(err, &wrong):
		want := "an object"
		switch wrong.Type.Kind() {
		case reflect.String:
			want = "a string"
		case reflect.Slice:
			want = "a list"
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
		return "unknown field " + field + "; want title, body, data, collapse_key, expires or targets"
	}
	return text
}
