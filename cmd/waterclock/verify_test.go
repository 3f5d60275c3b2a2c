package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const verified = `
default: standard
policies:
  standard:
    tenant: {rules: [{leak: 10/s}]}
    user: {rules: [{window: 2/1s}, {spacing: 250ms}]}
`

func TestVerify(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		slots []time.Duration
		late  time.Duration // of the last start
		want  string        // part of what is printed, or of the error
	}{
		"kept":             {[]time.Duration{0, 300 * time.Millisecond, time.Second}, 0, "every limit was kept"},
		"too close":        {[]time.Duration{0, 200 * time.Millisecond}, 0, "spacing 250ms broken"},
		"too many":         {[]time.Duration{0, 300 * time.Millisecond, 900 * time.Millisecond}, 0, "window 2/1s broken"},
		"faster than leak": {[]time.Duration{0, 50 * time.Millisecond}, 0, "leak 10/s broken"},
		"before its slot":  {[]time.Duration{0, time.Second}, -time.Millisecond, "before it: 1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			var log strings.Builder
			for i, slot := range test.slots {
				started := begin.Add(slot)
				if i == len(test.slots)-1 {
					started = started.Add(test.late)
				}
				fmt.Fprintf(&log, `{"id":"%d","tenant":"t","user":"u","slot":%q,"started_at":%q,"attempt":1}`+"\n",
					i, begin.Add(slot).Format(time.RFC3339Nano), started.Format(time.RFC3339Nano))
			}
			write(t, filepath.Join(dir, "p.yaml"), verified)
			write(t, filepath.Join(dir, "d.jsonl"), log.String())
			var out bytes.Buffer
			err := run(t.Context(), []string{"verify", "--policies", filepath.Join(dir, "p.yaml"), filepath.Join(dir, "d.jsonl")}, strings.NewReader(""), &out, &out)
			if printed := out.String() + fmt.Sprint(err); !strings.Contains(printed, test.want) {
				t.Errorf("printed %q, want %q in it", printed, test.want)
			}
			if broken := strings.Contains(test.want, "broken"); broken != (err != nil) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// Users and values of keys whose names look alike once they stand side by side have limits of their own.
func TestVerifyTellsNamesApart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policies, log := filepath.Join(dir, "p.yaml"), filepath.Join(dir, "d.jsonl")
	write(t, policies, `
default: standard
policies:
  standard: {user: {rules: [{window: 1/1h}]}}
limits:
  pair: {key: [keys.a, keys.b], rules: [{window: 1/1h}]}
`)
	var lines strings.Builder
	for i, names := range [][2]string{{"x / y", "z"}, {"x", "y / z"}, {"x /", "z"}, {"x", "/ z"}, {"\"x", "z"}, {"x", "z"}} {
		line, err := json.Marshal(map[string]any{
			"id": fmt.Sprint(i), "tenant": names[0], "user": names[1], "slot": "2026-01-01T00:00:00Z", "started_at": "2026-01-01T00:00:00Z", "attempt": 1,
			"keys": map[string]string{"a": names[0], "b": names[1]},
		})
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}
	write(t, log, lines.String())
	var out bytes.Buffer
	if err := run(t.Context(), []string{"verify", "--policies", policies, log}, strings.NewReader(""), &out, &out); err != nil {
		t.Errorf("%v:\n%s", err, out.String())
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A file that is no log of starts proves nothing: it is refused, with its line.
func TestVerifyRefusesOtherFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policies, log := filepath.Join(dir, "p.yaml"), filepath.Join(dir, "d.jsonl")
	write(t, policies, verified)
	whole := `{"id":"a","tenant":"t","user":"u","slot":"2026-01-01T00:00:00Z","started_at":"2026-01-01T00:00:00Z","attempt":1}` + "\n"
	for text, want := range map[string]string{
		whole + `{"tenant":"t","user":"u","type":"push"}` + "\n": "d.jsonl:2: not a start: want id, tenant, user, slot and started_at, as worker --sender log writes them",
		whole + `{"id":"b","ten`:                                 "d.jsonl:2: not a start: unexpected end of JSON input",
		"":                                                       "no starts in the logs",
	} {
		write(t, log, text)
		var out bytes.Buffer
		err := run(t.Context(), []string{"verify", "--policies", policies, log}, strings.NewReader(""), &out, &out)
		if err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%q: %v, printed %q; want %q", text, err, &out, want)
		}
	}
	err := run(t.Context(), []string{"verify", "--policies", filepath.Join(dir, "none.yaml"), log}, strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
	if want := "--policies: open "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v; want %q", err, want)
	}
}

// Limits by name are checked for the values of their keys, by what each start costs of them.
func TestVerifyLimitsByName(t *testing.T) {
	t.Parallel()
	const policies = `
limits:
  marketing: {jobs: {type: marketing}, key: [tenant, user], counts: jobs, rules: [{window: 2/1s}]}
  domain: {key: keys.domain, rules: [{leak: 10/s}], each: {free.example: unlimited}}
  tokens: {counts: tokens, rules: [{window: 100/1s}]}
`
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	line := func(at time.Duration, more string) string {
		instant := begin.Add(at).Format(time.RFC3339Nano)
		return fmt.Sprintf(`{"id":"%v","tenant":"t","user":"u","slot":%q,"started_at":%q,"attempt":1%s}`+"\n", at, instant, instant, more)
	}
	for want, log := range map[string]string{
		"every limit was kept": line(0, `,"type":"marketing"`) + line(1, `,"type":"marketing"`) + line(2, `,"type":"chat"`) +
			line(3, `,"keys":{"domain":"a"},"costs":{"tokens":60}`) + line(4, `,"keys":{"domain":"b"},"costs":{"tokens":40}`) +
			line(5, `,"keys":{"domain":"free.example"}`) + line(6, `,"keys":{"domain":"free.example"}`),
		"limit marketing t / u: window 2/1s broken": line(0, `,"type":"marketing"`) + line(1, `,"type":"marketing"`) + line(2, `,"type":"marketing"`),
		"limit domain a: leak 10/s broken":          line(0, `,"cost":3,"keys":{"domain":"a"}`) + line(200*time.Millisecond, `,"keys":{"domain":"a"}`),
		"limit tokens: window 100/1s broken":        line(0, `,"costs":{"tokens":60}`) + line(1, `,"costs":{"tokens":41}`),
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "p.yaml"), policies)
		write(t, filepath.Join(dir, "d.jsonl"), log)
		var out bytes.Buffer
		err := run(t.Context(), []string{"verify", "--policies", filepath.Join(dir, "p.yaml"), filepath.Join(dir, "d.jsonl")}, strings.NewReader(""), &out, &out)
		if broken := strings.Contains(want, "broken"); !strings.Contains(out.String(), want) || broken != (err != nil) {
			t.Errorf("printed %q, %v; want %q", out.String(), err, want)
		}
	}
}
