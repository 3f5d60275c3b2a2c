package redistest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
)

// A habit is what a server answers to a script.
type habit struct {
	script string
	redis  string // a part of the answer of a real Redis
	mini   string // of the embedded one; "" if they agree
}

// habits are the differences between the two servers that have cost a bug, or would, and
// beside each what scripts may rely on: there they agree. When one stops to differ, its
// line here and the workaround in the scripts can go.
var habits = map[string]habit{
	// The embedded interpreter forgets a false first operand where the result goes into the
	// second one. Give the first operand a name.
	"x = f() and x":                {"local function f() return false end local x = true x = f() and x return tostring(x)", "false", "true"},
	"local y = f() x = y and x":    {"local function f() return false end local x = true local y = f() x = y and x return tostring(x)", "false", ""},
	"x = a and f(a) or x, a nil":   {"local a, x = nil, 'old' x = a and ('new' .. a) or x return x", "old", ""},
	"x = a and f(a) or x, a there": {"local a, x = '!', 'old' x = a and ('new' .. a) or x return x", "new!", ""},

	// A number is written with 14 digits by Redis, an instant in µs has 16. Write
	// instants with %d; do not let .. or tostring do it.
	"tostring of an instant":    {"return tostring(1763600000123456)", "1.7636000001235e+15", "1763600000123456"},
	"an instant .. text":        {"return 1763600000123456 .. ''", "1.7636000001235e+15", "1763600000123456"},
	"format of an instant":      {"return string.format('%d', 1763600000123456)", "1763600000123456", ""},
	"format of 2^53 - 1":        {"return string.format('%d', 9007199254740991)", "9007199254740991", ""},
	"a small number .. text":    {"return 12345678901234 .. ''", "12345678901234", ""},
	"tostring of a fraction":    {"return tostring(0.5)", "0.5", ""},
	"a number as a reply":       {"return 3.9", "3", ""},
	"a long number as a reply":  {"return 1763600000123456", "1763600000123456", ""},
	"a long number as argument": {"redis.call('SET', KEYS[1], string.format('%d', 1763600000123456)) return redis.call('GET', KEYS[1])", "1763600000123456", ""},
	"stamps in hexadecimal":     {"return string.format('%014x', 1763600000123456)", "0643fc1f888240", ""},
	"tonumber of a stamp":       {"return string.format('%d', tonumber('0643fc1f888240', 16))", "1763600000123456", ""},
	"arithmetic on texts":       {"return string.format('%d', ('1763600000123456' + 0) + '1')", "1763600000123457", ""},
	"a score of 16 digits":      {"redis.call('ZADD', KEYS[1], '1763600000123457', 'a') return redis.call('ZSCORE', KEYS[1], 'a')", "1763600000123457", ""},
	"division, floor":           {"return string.format('%d', math.floor(1763600000123456 / 1000))", "1763600000123", ""},

	// A key that is not there is false in both, and so is a field.
	"GET of nothing":   {"return tostring(redis.call('GET', KEYS[1]))", "false", ""},
	"HMGET of nothing": {"return tostring(redis.call('HMGET', KEYS[1], 'a', 'b')[2])", "false", ""},
	"EXISTS counts":    {"redis.call('SET', KEYS[1], '1') return redis.call('EXISTS', KEYS[1], KEYS[1])", "2", ""},
	"status replies":   {"return redis.call('SET', KEYS[1], '1').ok", "OK", ""},
	"SET NX refused":   {"redis.call('SET', KEYS[1], '1') return tostring(redis.call('SET', KEYS[1], '2', 'NX'))", "false", ""},
	"ZADD LT":          {"redis.call('ZADD', KEYS[1], '5', 'a') redis.call('ZADD', KEYS[1], 'LT', '7', 'a') redis.call('ZADD', KEYS[1], 'XX', 'LT', '3', 'a') return redis.call('ZSCORE', KEYS[1], 'a')", "3", ""},
	"empty lists go":   {"redis.call('RPUSH', KEYS[1], 'a') redis.call('LTRIM', KEYS[1], '1', '-1') return redis.call('EXISTS', KEYS[1])", "0", ""},

	// An error that is caught is a table in some versions of Redis, and a text in others and
	// in the embedded one: look at its type before its err.
	"type of a caught error": {"redis.call('SET', KEYS[1], '1') local _, e = pcall(redis.call, 'HGET', KEYS[1], 'a') return type(e)", "table|string", "string"},
	"text of a caught error": {"redis.call('SET', KEYS[1], '1') local _, e = pcall(redis.call, 'HGET', KEYS[1], 'a') return type(e) == 'table' and e.err or tostring(e)", "WRONGTYPE", ""},
	"what was done stays":    {"redis.call('SET', KEYS[1], 'kept') pcall(redis.call, 'HGET', KEYS[1], 'a') return redis.call('GET', KEYS[1])", "kept", ""},
	"an error reply":         {"return redis.error_reply('STALE 7')", "STALE 7", ""},

	// A caught error parts a local variable from the functions that share it. Keep what is
	// shared in a table, and do not call such functions after a failed pcall.
	"a shared variable after pcall": {`
local at = 1
local function list() at = at + 1 return at end
list()
pcall(redis.call, 'NONSENSE')
list()
return string.format('%d', at)`, "3", "2"},
	"a shared table after pcall": {`
local s = { at = 1 }
local function list() s.at = s.at + 1 return s.at end
list()
pcall(redis.call, 'NONSENSE')
list()
return string.format('%d', s.at)`, "3", ""},

	"unpack of a range":    {"return table.concat({ unpack(ARGV, 2, 3) }, ',')", "b,c", ""},
	"patterns are plain":   {"return tostring(string.find('a.c', '.', 1, true))", "2", ""},
	"bytes are bytes":      {"return #'\\255\\0\\128'", "3", ""},
	"cjson is there":       {"return cjson.decode('{\"a\":1}').a", "1", ""},
	"math.huge is a bound": {"return string.format('%d', math.min(math.huge, 7))", "7", ""},
}

// What scripts may rely on is the same on both servers; where these differ, it is known how.
func TestDifferences(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		real := strings.HasSuffix(t.Name(), "/redis")
		for name, h := range habits {
			client.Del(t.Context(), "key")
			reply, err := client.Eval(t.Context(), h.script, []string{"key"}, "a", "b", "c").Result()
			got := fmt.Sprint(reply)
			if err != nil {
				got = err.Error()
			}
			want := h.redis
			if !real && h.mini != "" {
				want = h.mini
			}
			if !one(got, want) {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	})
}

// one reports whether an answer holds one of the parts.
func one(got, parts string) bool {
	for part := range strings.SplitSeq(parts, "|") {
		if strings.Contains(got, part) {
			return true
		}
	}
	return false
}

// A key is gone at the very instant in which it expires, and there a moment before; only
// virtual time can tell. What has to be known until an instant expires a millisecond later.
func TestExpiryAtTheInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redistest.ExactMini(t)
		if err := client.Set(t.Context(), "key", "x", time.Second).Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second - time.Microsecond)
		if client.Exists(t.Context(), "key").Val() != 1 {
			t.Error("gone before its time")
		}
		time.Sleep(time.Microsecond)
		if client.Exists(t.Context(), "key").Val() != 0 {
			t.Error("there at its end: package rules adds a millisecond for nothing")
		}
	})
	client := redistest.Start(t).Client(t)
	if err := client.Set(t.Context(), "key", "x", 50*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	left, err := client.PTTL(t.Context(), "key").Result()
	if err != nil || left > 50*time.Millisecond || left < 0 {
		t.Errorf("%v left, %v", left, err)
	}
	redistest.Eventually(t, 5*time.Second, "it is gone", func() bool { return client.Exists(t.Context(), "key").Val() == 0 })
}

// While a script runs on Redis no key expires: what it has seen stays. In the embedded
// server keys do expire then. TIME may go on in both, and never goes back: take it once.
func TestTimeInAScript(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		reply, err := client.Eval(t.Context(), `
local a = redis.call('TIME')
redis.call('SET', KEYS[1], 'x', 'PX', '1')
for i = 1, 200000 do a.x = i end
local b = redis.call('TIME')
return { (b[1] - a[1]) * 1000000 + b[2] - a[2], redis.call('EXISTS', KEYS[1]) }`, []string{"key"}).Int64Slice()
		if err != nil {
			t.Fatal(err)
		}
		if real := strings.HasSuffix(t.Name(), "/redis"); reply[0] < 0 || real && reply[1] != 1 {
			t.Errorf("%d µs passed; the key is there: %d", reply[0], reply[1])
		}
	})
}
