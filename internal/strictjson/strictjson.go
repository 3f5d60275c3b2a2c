// Package strictjson reads JSON objects strictly. What nobody reads is refused: a misspelt
// key would be a limit or a deadline that silently does not hold. So is a key that stands
// there twice, text that is no UTF-8, and half a surrogate pair. An error says where.
//
//	err := strictjson.Object(data, func(name string, value json.RawMessage) error {
//		switch name {
//		case "tenant":
//			tenant, err = strictjson.Text(value)
//		default:
//			return errors.New("unknown key; want tenant")
//		}
//		return err
//	})
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// An Error is what is wrong with a document. Its text is "field: what is wrong; what would be
// right", or less.
type Error struct {
	Field  string // the key; empty for the whole document
	Offset int    // where, in bytes from the beginning of the document
	Err    error
}

func (e *Error) Error() string {
	if e.Field == "" {
		return e.Err.Error()
	}
	return quoted(e.Field) + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Parts returns what is wrong and what would be right, without the field. The second is empty
// if the error does not say it.
func Parts(err error) (what, want string) {
	what, want, _ = strings.Cut(err.Error(), "; ")
	return what, want
}

// Object reads a document that is one object: it calls set for each key, in their order. Its
// errors are of type [*Error].
func Object(doc []byte, set func(name string, value json.RawMessage) error) error {
	if err := check(doc); err != nil {
		return err
	}
	seen := make(map[string]bool, 8)
	decoder := json.NewDecoder(bytes.NewReader(doc))
	_, err := decoder.Token() // the brace
	for err == nil && decoder.More() {
		at := int(decoder.InputOffset())
		at += max(0, bytes.IndexByte(doc[at:], '"'))
		var key json.Token
		if key, err = decoder.Token(); err != nil {
			break
		}
		name, _ := key.(string)
		var value json.RawMessage
		if err = decoder.Decode(&value); err != nil {
			break
		}
		if seen[name] {
			return &Error{name, at, errors.New("appears twice")}
		}
		seen[name] = true
		if err := set(name, value); err != nil {
			return &Error{name, at, err}
		}
	}
	if err != nil {
		return &Error{Offset: int(decoder.InputOffset()), Err: fmt.Errorf("not JSON: %w", err)}
	}
	return nil
}

// check makes sure that a document is one JSON object, so that the rest is about fields.
func check(doc []byte) error {
	if err := Valid(doc); err != nil {
		return err
	}
	if kind := Kind(doc); kind != "an object" {
		return &Error{Err: errors.New(kind + "; want an object")}
	}
	return nil
}

// Valid returns an [*Error] for what is no JSON in UTF-8.
func Valid(doc []byte) error {
	if !utf8.Valid(doc) {
		at := invalidByte(doc)
		return &Error{Offset: at, Err: fmt.Errorf("not UTF-8: byte %d", at+1)}
	}
	if json.Valid(doc) {
		return nil
	}
	var any json.RawMessage
	err := json.Unmarshal(doc, &any)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return &Error{Offset: max(0, int(syntax.Offset)-1), Err: fmt.Errorf("not JSON: %w (byte %d)", err, syntax.Offset)}
	}
	return &Error{Err: fmt.Errorf("not JSON: %w", err)}
}

func invalidByte(doc []byte) int {
	at := 0
	for at < len(doc) {
		r, size := utf8.DecodeRune(doc[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at
}

// Text reads a string.
func Text(value json.RawMessage) (string, error) {
	var s string
	if json.Unmarshal(value, &s) != nil || value[0] != '"' {
		return "", fmt.Errorf("%s; want a string", Kind(value))
	}
	// Half a surrogate pair would be read as U+FFFD: two names could become one.
	if strings.ContainsRune(s, utf8.RuneError) && !bytes.ContainsRune(value, utf8.RuneError) &&
		!bytes.Contains(bytes.ToLower(value), []byte(`\ufffd`)) {
		return "", fmt.Errorf("%s holds half a surrogate pair; want both or none", value)
	}
	return s, nil
}

// Number reads a whole number from least to most.
func Number(value json.RawMessage, least, most int) (int, error) {
	n, err := strconv.Atoi(string(value))
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s; want a whole number from %d to %d", Shown(value), least, most)
	}
	return n, nil
}

// Kind names what a JSON value is.
func Kind(value []byte) string {
	switch c := append(bytes.TrimLeft(value, " \t\r\n"), 0)[0]; c {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "a number"
}

// Shown is a value as it is quoted in an error: whole if it is short.
func Shown(value json.RawMessage) string {
	if c := value[0]; c == '{' || c == '[' || len(value) > 64 {
		return Kind(value)
	}
	return string(value)
}

// quoted is a key as it is quoted in an error.
func quoted(name string) string {
	for _, c := range name {
		if c != '_' && (c < 'a' || c > 'z') {
			return strconv.Quote(name[:min(len(name), 64)])
		}
	}
	return name
}
