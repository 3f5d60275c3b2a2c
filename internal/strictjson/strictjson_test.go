package strictjson

import (
	"encoding/json"
	"errors"
	"testing"
)

// Each error names the key, and the byte at which it begins.
func TestErrorsSayWhere(t *testing.T) {
	for doc, want := range map[string]Error{
		`{"a":1, "b" :2}`:      {"b", 8, errors.New("unknown key; want a")},
		`{"a":1,"a":2}`:        {"a", 7, errors.New("appears twice")},
		"{\n  \"a\": \"x\"\n}": {"a", 4, errors.New(`"x"; want a whole number from 0 to 9`)},
		`[{"a":1}]`:            {"", 0, errors.New("a list; want an object")},
		`{"a":1,}`:             {"", 7, errors.New("not JSON: invalid character '}' looking for beginning of object key string (byte 8)")},
		"{\"\xff\":1}":         {"", 2, errors.New("not UTF-8: byte 3")},
		``:                     {"", 0, errors.New("not JSON: unexpected end of JSON input (byte 0)")},
	} {
		err := Object([]byte(doc), func(name string, value json.RawMessage) (err error) {
			if name != "a" {
				return errors.New("unknown key; want a")
			}
			_, err = Number(value, 0, 9)
			return err
		})
		var got *Error
		if !errors.As(err, &got) || got.Field != want.Field || got.Offset != want.Offset || got.Err.Error() != want.Err.Error() {
			t.Errorf("%s: %+v, want %+v", doc, got, want)
		}
	}
	if what, want := Parts(errors.New("a number; want a string")); what != "a number" || want != "want a string" {
		t.Errorf("%q, %q", what, want)
	}
}
