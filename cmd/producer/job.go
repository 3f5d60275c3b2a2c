package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waterclock/waterclock/queue"
)

const knownKeys = "tenant, user, type, payload, id, cost, not_before, deadline, finish_by, priority, collapse_key, max_retry or timeout"

// parseJob reads a line. It is strict: a key that nobody reads would be a limit or a
// deadline that silently does not hold.
func parseJob(line []byte) (queue.Job, error) {
	var job queue.Job
	if err := checkJSON(line); err != nil {
		return job, err
	}
	seen := make(map[string]bool, 8)
	decoder := json.NewDecoder(bytes.NewReader(line))
	_, err := decoder.Token() // the brace
	for err == nil && decoder.More() {
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
			return job, fmt.Errorf("%s: stands there twice", quoted(name))
		}
		seen[name] = true
		if err := setField(&job, name, value); err != nil {
			return job, fmt.Errorf("%s: %w", quoted(name), err)
		}
	}
	if err != nil {
		return job, fmt.Errorf("not JSON: %w", err)
	}
	return job, complaint(job.Validate())
}

// complaint is what is wrong with a job, for people, who see in which line.
func complaint(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(err.Error(), queue.ErrInvalidJob.Error()+": "))
}

// checkJSON makes sure that a line is one JSON object, so that the rest is about fields.
func checkJSON(line []byte) error {
	if !utf8.Valid(line) {
		return fmt.Errorf("not UTF-8: byte %d", invalidByte(line))
	}
	if !json.Valid(line) {
		var any json.RawMessage
		err := json.Unmarshal(line, &any)
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return fmt.Errorf("not JSON: %w (byte %d)", err, syntax.Offset)
		}
		return fmt.Errorf("not JSON: %w", err)
	}
	if kind := kindOf(line); kind != "an object" {
		return fmt.Errorf(`%s; want an object such as {"tenant":"school-7","user":"teacher-42","type":"push"}`, kind)
	}
	return nil
}

func invalidByte(line []byte) int {
	at := 0
	for at < len(line) {
		r, size := utf8.DecodeRune(line[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at + 1
}

// setField reads one field of the object.
func setField(job *queue.Job, name string, value json.RawMessage) (err error) {
	switch name {
	case "tenant":
		job.Tenant, err = readString(value)
	case "user":
		job.User, err = readString(value)
	case "type":
		job.Type, err = readString(value)
	case "id":
		job.ID, err = readString(value)
	case "collapse_key":
		job.CollapseKey, err = readString(value)
	case "payload":
		if len(value) > maxPayload {
			return fmt.Errorf("%d bytes; want at most %d", len(value), maxPayload)
		}
		job.Payload = value
	case "cost":
		job.Cost, err = readNumber(value, 1)
	case "max_retry":
		// In a line, 0 is said on purpose: never again.
		if job.MaxAttempts, err = readNumber(value, 0); err == nil {
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
	default:
		err = errors.New("unknown key; want " + knownKeys)
	}
	return err
}

func readString(value json.RawMessage) (string, error) {
	var s string
	if json.Unmarshal(value, &s) != nil || value[0] != '"' {
		return "", fmt.Errorf("%s; want a string", kindOf(value))
	}
	// Half a surrogate pair would be read as U+FFFD: two names could become one.
	if strings.ContainsRune(s, utf8.RuneError) && !bytes.ContainsRune(value, utf8.RuneError) &&
		!bytes.Contains(bytes.ToLower(value), []byte(`\ufffd`)) {
		return "", fmt.Errorf("%s holds half a surrogate pair; want both or none", value)
	}
	return s, nil
}

func readNumber(value json.RawMessage, least int) (int, error) {
	n, err := strconv.Atoi(string(value))
	if err != nil || n < least || n > 1_000_000 {
		return 0, fmt.Errorf("%s; want a whole number from %d to 1000000", shown(value), least)
	}
	return n, nil
}

func readTime(value json.RawMessage) (time.Time, error) {
	s, err := readString(value)
	t, bad := time.Parse(time.RFC3339, s)
	if err != nil || bad != nil {
		return t, fmt.Errorf("%s; want a time such as \"2026-11-21T08:00:00Z\"", shown(value))
	}
	if year := t.UTC().Year(); year < 1970 || year > 2200 {
		return t, fmt.Errorf("%s; want a time from 1970 to 2200", shown(value))
	}
	return t, nil
}

func readDuration(value json.RawMessage) (time.Duration, error) {
	s, err := readString(value)
	d, bad := time.ParseDuration(s)
	if err != nil || bad != nil || d <= 0 {
		return 0, fmt.Errorf("%s; want a time such as \"30s\"", shown(value))
	}
	return d, nil
}

func readPriority(value json.RawMessage) (queue.Priority, error) {
	s, err := readString(value)
	switch {
	case err == nil && s == "high":
		return queue.High, nil
	case err == nil && s == "normal":
		return queue.Normal, nil
	case err == nil && s == "low":
		return queue.Low, nil
	}
	return 0, fmt.Errorf(`%s; want "high", "normal" or "low"`, shown(value))
}

// kindOf names what a JSON value is.
func kindOf(value []byte) string {
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

// shown is a value as it is quoted in an error: whole if it is short.
func shown(value json.RawMessage) string {
	if c := value[0]; c == '{' || c == '[' || len(value) > 64 {
		return kindOf(value)
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
