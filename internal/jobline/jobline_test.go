package jobline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock/waterclock/queue"
)

func TestParse(t *testing.T) {
	at := time.Date(2026, 11, 21, 8, 0, 0, 500_000_000, time.UTC)
	tests := map[string]queue.Job{
		`{"tenant":"t","user":"u","type":"push"}`: {Tenant: "t", User: "u", Type: "push"},
		` { "tenant" : "a\u0000b" , "user":"школа\n","type":":{}", "payload" : {"b": 1.0,  "a":"<\u003c" } } `: {
			Tenant: "a\x00b", User: "школа\n", Type: ":{}", Payload: []byte(`{"b": 1.0,  "a":"<\u003c" }`),
		},
		`{"tenant":"t","user":"u","type":"push","payload":null}`:                 {Tenant: "t", User: "u", Type: "push", Payload: []byte("null")},
		`{"tenant":"t","user":"u","type":"push","max_retry":0,"priority":"low"}`: {Tenant: "t", User: "u", Type: "push", MaxAttempts: 1, Priority: queue.Low},
		`{"tenant":"t","user":"u","type":"push","id":"7","cost":3,"not_before":"2026-11-21T09:00:00.5+01:00",` +
			`"deadline":"2026-11-21T08:00:00.5Z","priority":"high","collapse_key":"k","max_retry":2,"timeout":"1m30s"}`: {
			Tenant: "t", User: "u", Type: "push", ID: "7", Cost: 3, NotBefore: at, StartBy: at, Priority: queue.High,
			CollapseKey: "k", MaxAttempts: 3, Timeout: 90 * time.Second,
		},
		`{"tenant":"t","user":"u","type":"push","headers":{"traceparent":"00-1","":"x"}}`: {
			Tenant: "t", User: "u", Type: "push", Headers: map[string]string{"traceparent": "00-1", "": "x"},
		},
		`{"tenant":"t","user":"u","type":"push","keys":{"domain":"gmail.com"},"costs":{"tokens":812,"calls":0}}`: {
			Tenant: "t", User: "u", Type: "push", Keys: map[string]string{"domain": "gmail.com"}, Costs: map[string]int{"tokens": 812, "calls": 0},
		},
		`{"tenant":"t","user":"u","type":"push","callback":{"url":"https://shop.example/hooks"}}`: {
			Tenant: "t", User: "u", Type: "push", Callback: queue.Callback{URL: "https://shop.example/hooks"},
		},
		`{"tenant":"\ufffd","user":"` + "\ufffd" + `","type":"\ud83d\ude00"}`: {Tenant: "\ufffd", User: "\ufffd", Type: "😀"},
	}
	for line, want := range tests {
		got, err := Parse([]byte(line))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", line, err, diff)
		}
	}
}

// Each message names the field, what is wrong and what would be right.
func TestBadJob(t *testing.T) {
	object := ` want an object such as {"tenant":"school-7","user":"teacher-42","type":"push"}`
	whole := func(line, want string) [2]string { return [2]string{line, want} }
	field := func(field, want string) [2]string {
		return [2]string{`{"tenant":"t","user":"u","type":"push",` + field + `}`, want}
	}
	tests := [][2]string{
		whole(`[]`, `a list;`+object),
		whole(`"job"`, `a string;`+object),
		whole(`null`, `null;`+object),
		whole(`tenant: t`, `not JSON: invalid character 'e' in literal true (expecting 'r') (byte 2)`),
		whole(`{"tenant":"t"`, `not JSON: unexpected end of JSON input (byte 13)`),
		whole(`{"tenant":"t",}`, `not JSON: invalid character '}' looking for beginning of object key string (byte 15)`),
		whole(`{"tenant":"t"} {}`, `not JSON: invalid character '{' after top-level value (byte 16)`),
		whole("{\"tenant\":\"caf\xe9\"}", `not UTF-8: byte 15`),
		whole(`{}`, `tenant is missing`),
		whole(`{"tenant":"t"}`, `user is missing`),
		whole(`{"tenant":"t","user":"u"}`, `type is missing`),
		whole(`{"tenant":"","user":"u","type":"push"}`, `tenant is missing`),
		whole(`{"tenant":7}`, `tenant: a number; want a string`),
		whole(`{"tenant":null}`, `tenant: null; want a string`),
		whole(`{"tenant":"\ud83d"}`, `tenant: "\ud83d" holds half a surrogate pair; want both or none`),
		whole(`{"tenant":"t","tenant":"t"}`, `tenant: appears twice`),
		whole(`{"tenant":"`+strings.Repeat("x", 1025)+`","user":"u","type":"t"}`, `tenant has 1025 bytes; at most 1024`),
		field(`"user_id":"u"`, `user_id: unknown key; want `+Keys),
		field(`"Cost":1`, `"Cost": unknown key; want `+Keys),
		field(`"payload":"`+strings.Repeat("x", MaxPayload)+`"`, `payload: 1048578 bytes; want at most 1048576`),
		field(`"cost":0`, `cost: 0; want a whole number from 1 to 1000000`),
		field(`"cost":1.5`, `cost: 1.5; want a whole number from 1 to 1000000`),
		field(`"cost":"1"`, `cost: "1"; want a whole number from 1 to 1000000`),
		field(`"cost":[1]`, `cost: a list; want a whole number from 1 to 1000000`),
		field(`"max_retry":-1`, `max_retry: -1; want a whole number from 0 to 1000000`),
		field(`"not_before":1748607359`, `not_before: 1748607359; want a time such as "2026-11-21T08:00:00Z"`),
		field(`"not_before":"tomorrow"`, `not_before: "tomorrow"; want a time such as "2026-11-21T08:00:00Z"`),
		field(`"deadline":"1969-12-31T23:59:59Z"`, `deadline: "1969-12-31T23:59:59Z"; want a time from 1970 to 2200`),
		field(`"priority":"urgent"`, `priority: "urgent"; want "high", "normal" or "low"`),
		field(`"priority":1`, `priority: 1; want "high", "normal" or "low"`),
		field(`"headers":["a"]`, `headers: a list; want an object of strings such as {"traceparent":"00-…"}`),
		field(`"headers":{"a":1}`, `headers: a: a number; want a string`),
		field(`"headers":{"a":"`+strings.Repeat("x", 64<<10)+`"}`, `headers have 65537 bytes; at most 65536`),
		field(`"keys":"gmail.com"`, `keys: "gmail.com"; want an object of strings such as {"domain":"gmail.com"}`),
		field(`"keys":{"domain":7}`, `keys: domain: a number; want a string`),
		field(`"keys":{"domain":""}`, `keys.domain has 0 bytes; from 1 to 256`),
		field(`"keys":{"a b":"x"}`, `keys: name "a b"; 1 to 64 letters, digits, dots, dashes or underscores`),
		field(`"costs":7`, `costs: 7; want an object of numbers such as {"tokens":812}`),
		field(`"costs":{"tokens":1.5}`, `costs: tokens: 1.5; want a whole number from 0 to 1000000000`),
		field(`"costs":{"tokens":1000000001}`, `costs: tokens: 1000000001; want a whole number from 0 to 1000000000`),
		field(`"costs":{"tokens":1,"tokens":2}`, `costs: tokens: appears twice`),
		field(`"costs":{"tokens":-1}`, `costs: tokens: -1; want a whole number from 0 to 1000000000`),
		field(`"costs":{"jobs":1}`, `costs: unit "jobs"; want a name such as tokens: a lower-case letter, then up to 31 of them, digits or underscores`),
		field(`"callback":"https://shop.example"`, `callback: "https://shop.example"; want an object such as {"url":"https://shop.example/hooks","secret":"whsec_…"}`),
		field(`"callback":{}`, `callback: an empty object; want one such as {"url":"https://shop.example/hooks","secret":"whsec_…"}`),
		field(`"callback":{"URL":"x"}`, `callback: "URL": unknown key; want url or secret`),
		field(`"callback":{"url":7}`, `callback: url: a number; want a string`),
		field(`"callback":{"url":"shop"}`, `callback.url is no URL of an endpoint; want one such as "https://shop.example/hooks/waterclock"`),
		field(`"callback":{"secret":"whsec_"}`, `callback.url is missing`),
		field(`"timeout":30`, `timeout: 30; want a time such as "30s"`),
		field(`"timeout":"-1s"`, `timeout: "-1s"; want a time such as "30s"`),
		field(`"id":"`+strings.Repeat("x", 1025)+`"`, `id has 1025 bytes; at most 1024`),
	}
	for _, tt := range tests {
		if _, err := Parse([]byte(tt[0])); fmt.Sprint(err) != tt[1] {
			t.Errorf("%.100s:\n got %v\nwant %s", tt[0], err, tt[1])
		}
	}
}

// An error is about one key of the line, whether the text or the job is wrong.
func TestField(t *testing.T) {
	for fields, want := range map[string]string{
		`"keys":7`: "keys", `"keys":{"a":7}`: "keys", `"keys":{"a":""}`: "keys", `"keys":{"a b":"x"}`: "keys",
		`"keys":{` + many(`"x"`) + `}`: "keys", `"costs":{` + many("1") + `}`: "costs",
		`"costs":7`: "costs", `"costs":{"a":-1}`: "costs", `"costs":{"jobs":1}`: "costs", `"cost":0`: "cost", `"callback":{"url":"x"}`: "callback", `"callback":7`: "callback", `"key":{}`: "key", `"max_retry":-1`: "max_retry",
	} {
		_, err := Parse([]byte(`{"tenant":"t","user":"u","type":"push",` + fields + `}`))
		if err == nil || Field(err) != want {
			t.Errorf("%s: %v is about %q, want %q", fields, err, Field(err), want)
		}
	}
}

// many is the inside of an object with more fields than a job may have.
func many(value string) string {
	var fields []string
	for i := range 17 {
		fields = append(fields, fmt.Sprintf(`"f%d":%s`, i, value))
	}
	return strings.Join(fields, ",")
}

// Whatever the line, nothing panics, and what is read is a valid job with its payload
// byte for byte.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"tenant":"t","user":"u","type":"push","payload":{"at":1748607359}}`))
	f.Add([]byte(`{"tenant":"t","user":"u","type":"push","cost":2,"priority":"low","timeout":"3s","deadline":"2026-11-21T08:00:00Z"}`))
	f.Add([]byte(`{"tenant":"t","user":"u","type":"push","keys":{"domain":"gmail.com"},"costs":{"tokens":812}}`))
	f.Add([]byte(`{"tenant":"\ud83d","user":"` + "\xff" + `"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		before := bytes.Clone(line)
		job, err := Parse(line)
		if !bytes.Equal(before, line) {
			t.Fatalf("%q became %q", before, line)
		}
		if err != nil {
			if strings.Contains(err.Error(), "json:") || strings.Contains(err.Error(), "Go ") {
				t.Fatalf("%q: %v", line, err)
			}
			return
		}
		if err := job.Validate(); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if len(job.Payload) > 0 && (!json.Valid(job.Payload) || !bytes.Contains(line, job.Payload)) {
			t.Fatalf("%q: payload %q", line, job.Payload)
		}
		if !utf8.ValidString(job.Tenant) {
			t.Fatalf("%q: tenant %q", line, job.Tenant)
		}
	})
}
