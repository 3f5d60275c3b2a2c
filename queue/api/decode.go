package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/jobline"
	"github.com/waterclock/waterclock/internal/strictjson"
)

// decode reads an object into a struct, by the names of its fields' JSON tags. A field whose
// tag lacks omitempty is required. Fields are strings, numbers, instants, lists of strings and
// of anything, and the keys and costs of jobs.
func decode(body []byte, into any) error {
	target := reflect.ValueOf(into).Elem()
	fields := fieldsOf(target.Type())
	names, missing := fieldNames(target.Type())
	err := strictjson.Object(body, func(name string, value json.RawMessage) error {
		at := slices.Index(names, name)
		if at < 0 {
			return errors.New("unknown field; want " + strings.Join(names, ", "))
		}
		missing = slices.DeleteFunc(missing, func(m string) bool { return m == name })
		return set(target.FieldByIndex(fields[at].Index), value)
	})
	if err == nil && len(missing) > 0 {
		err = &strictjson.Error{Field: missing[0], Err: errors.New("is missing")}
	}
	return err
}

// fieldsOf returns the fields of a struct, and those of the structs that it embeds.
func fieldsOf(of reflect.Type) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(of), func(f reflect.StructField) bool { return f.Anonymous })
}

// fieldNames returns the names of a struct's fields, and which of them are required.
func fieldNames(of reflect.Type) (names, required []string) {
	for _, f := range fieldsOf(of) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
		if options == "" {
			required = append(required, name)
		}
	}
	return names, required
}

// set reads a value into a field.
func set(field reflect.Value, value json.RawMessage) (err error) {
	switch into := field.Addr().Interface().(type) {
	case *string:
		*into, err = strictjson.Text(value)
	case *int:
		*into, err = strictjson.Number(value, 0, 1_000_000)
	case *int64:
		if json.Unmarshal(value, into) != nil || *into < 0 || strictjson.Kind(value) != "a number" {
			err = fmt.Errorf("%s; want a whole number, 0 or more", strictjson.Shown(value))
		}
	case *time.Time:
		if json.Unmarshal(value, into) != nil || strictjson.Kind(value) != "a string" {
			err = fmt.Errorf(`%s; want an instant such as "2026-11-22T08:00:00Z"`, strictjson.Shown(value))
		}
	case *whose:
		err = into.read(value)
	case *span:
		err = into.read(value)
	case *[]string:
		err = readTexts(value, into)
	case *map[string]string:
		*into, err = jobline.ReadKeys(value)
	case *map[string]int:
		*into, err = jobline.ReadCosts(value)
	case *[]json.RawMessage:
		if json.Unmarshal(value, into) != nil || strictjson.Kind(value) != "a list" {
			err = fmt.Errorf("%s; want a list", strictjson.Shown(value))
		}
	default:
		err = fmt.Errorf("a field of type %v is not supported", field.Type())
	}
	return err
}

func readTexts(value json.RawMessage, into *[]string) error {
	var items []json.RawMessage
	if json.Unmarshal(value, &items) != nil || strictjson.Kind(value) != "a list" {
		return fmt.Errorf("%s; want a list of strings", strictjson.Shown(value))
	}
	for i, item := range items {
		text, err := strictjson.Text(item)
		if err != nil {
			return fmt.Errorf("item %d is %w", i, err)
		}
		*into = append(*into, text)
	}
	return nil
}

// A whose is the name of a tenant or user that may be left out, and then means everybody. An
// empty one is refused: it comes from a program that has lost the name.
type whose string

func (w *whose) read(value json.RawMessage) error {
	text, err := strictjson.Text(value)
	if err == nil && text == "" {
		err = errors.New("is empty; want a name, or leave the field out")
	}
	*w = whose(text)
	return err
}

// A span is a length of time as people write it: "10m".
type span string

func (s *span) read(value json.RawMessage) error {
	text, err := strictjson.Text(value)
	d, bad := time.ParseDuration(text)
	if err != nil || bad != nil || d < 0 {
		return fmt.Errorf(`%s; want a time such as "10m"`, strictjson.Shown(value))
	}
	*s = span(text)
	return nil
}

func (s span) duration() time.Duration {
	d, _ := time.ParseDuration(string(s))
	return d
}
