// Package jobline is a job as a line of JSON: what producer reads, what the HTTP API takes,
// what worker records and plan replays.
//
//	{"tenant":"school-7","user":"teacher-42","type":"push","payload":{"title":"Hello"}}
package jobline

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/strictjson"
	"github.com/waterclock/waterclock/queue"
)

// The bounds of a line, in bytes.
const (
	MaxPayload = 1 << 20
	MaxLine    = MaxPayload + 64<<10 // a payload, and long names around it
)

// Keys are the keys of a line.
const Keys = "tenant, user, type, payload, id, cost, not_before, deadline, finish_by, priority, collapse_key, digest_key, max_retry, timeout, headers, keys, costs, zone, quiet or callback"

// Parse reads a line. It is strict: a key that nobody reads would be a limit or a latest start
// that silently does not hold. What is wrong with the text is a [*strictjson.Error].
func Parse(line []byte) (queue.Job, error) {
	var job queue.Job
	err := strictjson.Object(line, func(name string, value json.RawMessage) error { return setField(&job, name, value) })
	if err != nil {
		return job, example(err)
	}
	return job, Complaint(job.Validate())
}

// example adds to the complaint about something that is no object how one looks.
func example(err error) error {
	var wrong *strictjson.Error
	if errors.As(err, &wrong) && wrong.Field == "" && strings.HasSuffix(wrong.Err.Error(), "; want an object") {
		wrong.Err = fmt.Errorf(`%w such as {"tenant":"school-7","user":"teacher-42","type":"push"}`, wrong.Err)
	}
	return err
}

// Complaint is what is wrong with a job, for people who see which one it is. It is nil for nil.
func Complaint(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(err.Error(), queue.ErrInvalidJob.Error()+": "))
}

// Field returns the key that an error of [Parse] is about; empty if it is about the whole line.
func Field(err error) string {
	var wrong *strictjson.Error
	if errors.As(err, &wrong) {
		return wrong.Field
	}
	first, _, _ := strings.Cut(err.Error(), " ")
	first = strings.TrimSuffix(first, ":")
	switch field, _, _ := strings.Cut(first, "."); {
	case field == "keys" || field == "costs" || field == "callback":
		return field
	case first == "max":
		return "max_retry"
	case slices.Contains(strings.FieldsFunc(Keys, func(r rune) bool { return r == ',' || r == ' ' }), first) && first != "or":
		return first
	}
	return ""
}

// setField reads one field of the object.
func setField(job *queue.Job, name string, value json.RawMessage) (err error) {
	switch name {
	case "tenant":
		job.Tenant, err = strictjson.Text(value)
	case "user":
		job.User, err = strictjson.Text(value)
	case "type":
		job.Type, err = strictjson.Text(value)
	case "id":
		job.ID, err = strictjson.Text(value)
	case "collapse_key":
		job.CollapseKey, err = strictjson.Text(value)
	case "digest_key":
		job.DigestKey, err = strictjson.Text(value)
	case "payload":
		if len(value) > MaxPayload {
			return fmt.Errorf("%d bytes; want at most %d", len(value), MaxPayload)
		}
		job.Payload = value
	case "cost":
		job.Cost, err = strictjson.Number(value, 1, 1_000_000)
	case "max_retry":
		// In a line, 0 is said on purpose: never again.
		if job.MaxAttempts, err = strictjson.Number(value, 0, 1_000_000); err == nil {
			job.MaxAttempts++
		}
	case "not_before":
		job.NotBefore, err = readTime(value)
	case "deadline":
		job.StartBy, err = readTime(value)
	case "finish_by":
		job.FinishBy, err = readTime(value)
	case "priority":
		job.Priority, err = readPriority(value)
	case "timeout":
		job.Timeout, err = readDuration(value)
	case "headers":
		job.Headers, err = readTexts(value, `{"traceparent":"00-…"}`)
	case "keys":
		job.Keys, err = ReadKeys(value)
	case "costs":
		job.Costs, err = ReadCosts(value)
	case "zone":
		job.Zone, err = strictjson.Text(value)
	case "quiet":
		job.Quiet, err = strictjson.Text(value)
	case "callback":
		job.Callback, err = readCallback(value)
	default:
		err = errors.New("unknown key; want " + Keys)
	}
	return err
}

func readTime(value json.RawMessage) (time.Time, error) {
	s, err := strictjson.Text(value)
	t, bad := time.Parse(time.RFC3339, s)
	if err != nil || bad != nil {
		return t, fmt.Errorf("%s; want a time such as \"2026-11-21T08:00:00Z\"", strictjson.Shown(value))
	}
	if year := t.UTC().Year(); year < 1970 || year > 2200 {
		return t, fmt.Errorf("%s; want a time from 1970 to 2200", strictjson.Shown(value))
	}
	return t, nil
}

func readDuration(value json.RawMessage) (time.Duration, error) {
	s, err := strictjson.Text(value)
	d, bad := time.ParseDuration(s)
	if err != nil || bad != nil || d <= 0 {
		return 0, fmt.Errorf("%s; want a time such as \"30s\"", strictjson.Shown(value))
	}
	return d, nil
}

func readTexts(value json.RawMessage, example string) (map[string]string, error) {
	if strictjson.Kind(value) != "an object" {
		return nil, fmt.Errorf(`%s; want an object of strings such as %s`, strictjson.Shown(value), example)
	}
	texts := make(map[string]string)
	err := strictjson.Object(value, func(name string, value json.RawMessage) (err error) {
		texts[name], err = strictjson.Text(value)
		return err
	})
	return texts, err
}

// ReadKeys reads the fields for whose values limits by name count.
func ReadKeys(value json.RawMessage) (map[string]string, error) {
	return readTexts(value, `{"domain":"gmail.com"}`)
}

// ReadCosts reads costs by their units.
func ReadCosts(value json.RawMessage) (map[string]int, error) {
	if strictjson.Kind(value) != "an object" {
		return nil, fmt.Errorf(`%s; want an object of numbers such as {"tokens":812}`, strictjson.Shown(value))
	}
	costs := make(map[string]int)
	err := strictjson.Object(value, func(unit string, value json.RawMessage) (err error) {
		costs[unit], err = strictjson.Number(value, 0, 1_000_000_000)
		return err
	})
	return costs, err
}

func readCallback(value json.RawMessage) (c queue.Callback, err error) {
	const example = `{"url":"https://shop.example/hooks","secret":"whsec_…"}`
	if strictjson.Kind(value) != "an object" {
		return c, fmt.Errorf("%s; want an object such as %s", strictjson.Shown(value), example)
	}
	err = strictjson.Object(value, func(name string, value json.RawMessage) (err error) {
		switch name {
		case "url":
			c.URL, err = strictjson.Text(value)
		case "secret":
			c.Secret, err = strictjson.Text(value)
		default:
			err = errors.New("unknown key; want url or secret")
		}
		return err
	})
	if err == nil && c == (queue.Callback{}) {
		err = fmt.Errorf("an empty object; want one such as %s", example)
	}
	return c, err
}

func readPriority(value json.RawMessage) (queue.Priority, error) {
	s, err := strictjson.Text(value)
	for _, p := range []queue.Priority{queue.High, queue.Normal, queue.Low} {
		if err == nil && s == p.String() {
			return p, nil
		}
	}
	return 0, fmt.Errorf(`%s; want "high", "normal" or "low"`, strictjson.Shown(value))
}
