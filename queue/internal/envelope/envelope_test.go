package envelope

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/waterclock/waterclock/internal/sample"
)

const stamp = "0643fc1fde259"

// whole is a job that says something with every option.
func whole() *Envelope {
	return &Envelope{
		Stamp: stamp, ID: "order-17", Cost: 7, Deadline: 1, Until: 2, NotBefore: 3, Ready: 4, Revived: 5, Failures: 6, Lost: 8, Late: 9, Slot: 10, Yields: true, Error: "no",
		MaxAttempts: 9, Priority: High, CollapseKey: "news", Timeout: time.Hour, Headers: map[string]string{"": "", "a": "b", "\x00": "\xff"},
		Keys: map[string]string{"domain": "gmail.com"}, Costs: map[string]int{"tokens": 812},
		Type: "push", Payload: "hello\x00", Spilled: "name", Lock: "lock", unknown: []byte{99, 1, 'x'},
	}
}

// random makes envelopes with any of the options.
type random struct{ *rand.Rand }

func (r random) text() string {
	b := make([]byte, r.IntN(2)*r.IntN(300))
	for i := range b {
		b[i] = byte(r.IntN(256))
	}
	return string(b)
}

func (r random) number(most int64) int64 { return int64(r.IntN(2)) * r.Int64N(most+1) }

func (r random) envelope() *Envelope {
	e := &Envelope{
		Stamp: stamp, ID: r.text(), Cost: 1 + int(r.number(1e6)), Deadline: r.number(int64(maxInstant)), Until: r.number(int64(maxInstant)),
		NotBefore: r.number(int64(maxInstant)), Ready: r.number(int64(maxInstant)), Revived: r.number(int64(maxInstant)), Failures: int(r.number(maxCount)),
		Lost: int(r.number(maxCount)), Late: r.number(int64(maxInstant)), Slot: r.number(int64(maxInstant) / 2), Yields: r.IntN(2) == 0, SentOn: r.IntN(2) == 0, MaxAttempts: int(r.number(maxCount)), Priority: r.IntN(3), CollapseKey: r.text(),
		Timeout: time.Duration(r.number(1<<63 - 2)), Type: r.text(), Payload: r.text(), Spilled: r.text(), Lock: r.text(), Error: r.text(), Callback: r.text(),
	}
	for range r.IntN(4) {
		if e.Headers == nil {
			e.Headers = map[string]string{}
		}
		e.Headers[r.text()] = r.text()
	}
	for range r.IntN(3) {
		if e.Keys == nil {
			e.Keys, e.Costs = map[string]string{}, map[string]int{}
		}
		e.Keys[r.text()], e.Costs[r.text()] = r.text(), int(r.number(maxCount))
	}
	for range r.IntN(3) {
		e.unknown = appendOption(e.unknown, byte(27+r.IntN(Critical-27)), []byte(r.text()))
	}
	return e
}

var whatIsThere = []cmp.Option{cmp.AllowUnexported(Envelope{}), cmpopts.EquateEmpty()}

// A job comes out of its bytes as it went in.
func TestRoundTrip(t *testing.T) {
	seed := sample.SeedOf(t)
	r := random{rand.New(rand.NewPCG(seed, 1))}
	all := []*Envelope{whole(), {Stamp: stamp, Cost: 1, MaxAttempts: DefaultAttempts, Priority: Normal}}
	for range 2000 {
		all = append(all, r.envelope())
	}
	for i, want := range all {
		text := want.String()
		got, err := Open(text)
		if diff := cmp.Diff(want, got, whatIsThere...); err != nil || diff != "" {
			t.Fatalf("seed %d, %d: %v (-want +got):\n%s", seed, i, err, diff)
		}
		if head, ok := Head(text); !ok || head.Name() != want.Name() || head.Type != want.Type {
			t.Fatalf("seed %d, %d: its head is %+v", seed, i, head)
		}
		if text != stamp+string(want.Body()) {
			t.Fatalf("seed %d, %d: the body is not what follows the stamp", seed, i)
		}
	}
}

// What a job usually is takes no bytes.
func TestUsualJobsAreShort(t *testing.T) {
	e := Envelope{Stamp: stamp, Cost: 1, MaxAttempts: DefaultAttempts, Priority: Normal, Type: "push", Payload: "hello"}
	if want := stamp + "\x00\x04pushhello"; e.String() != want {
		t.Errorf("%q, want %q", e.String(), want)
	}
}

// An option that nobody here knows stays with the job. One that has to be understood
// makes the job one of a newer version, of which the rest can be read.
func TestNewerOptions(t *testing.T) {
	text := string(appendOption([]byte(stamp), Critical-1, []byte("kept"))) + whole().String()[StampLen:]
	e, err := Open(text)
	if err != nil || !bytes.Contains([]byte(e.String()), []byte("\x7f\x04kept")) {
		t.Fatalf("%v: %q", err, e)
	}
	again, err := Open(e.String())
	if diff := cmp.Diff(e, again, whatIsThere...); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, tag := range []byte{Critical + 1, Critical + 2, 255} {
		text := string(appendOption([]byte(stamp), tag, []byte("must"))) + whole().String()[StampLen:]
		e, err := Open(text)
		if !errors.Is(err, ErrNewer) || e == nil || e.ID != "order-17" || e.Payload != "hello\x00" {
			t.Errorf("option %d: %v, %+v", tag, err, e)
			continue
		}
		if _, err := Open(e.String()); !errors.Is(err, ErrNewer) {
			t.Errorf("option %d is lost when the job is written again: %v", tag, err)
		}
		if head, ok := Head(text); !ok || head.ID != "order-17" {
			t.Errorf("option %d hides who the job is: %+v", tag, head)
		}
	}
}

// Values beyond their bounds are no job: sums of them would overflow.
func TestAbsurdValues(t *testing.T) {
	for name, option := range map[string][]byte{
		"cost":                appendNumber(nil, tagCost, maxCount+1, 0),
		"attempts":            appendNumber(nil, tagAttempts, 1<<63, 0),
		"failures":            appendNumber(nil, tagFailures, 1<<64-1, 0),
		"lost":                appendNumber(nil, tagLost, 1<<40, 0),
		"priority":            appendNumber(nil, tagPriority, 3, 1),
		"deadline":            appendNumber(nil, tagDeadline, maxInstant+1, 0),
		"until":               appendNumber(nil, tagUntil, 1<<62, 0),
		"ready":               appendNumber(nil, tagReady, 1<<62, 0),
		"revived":             appendNumber(nil, tagRevived, 1<<62, 0),
		"not before":          appendNumber(nil, tagBegin, 1<<62, 0),
		"timeout":             appendNumber(nil, tagTimeout, 1<<63, 0),
		"a longer number":     appendOption(nil, tagCost, []byte{1, 0}),
		"an endless number":   appendOption(nil, tagCost, bytes.Repeat([]byte{0x80}, 11)),
		"no number":           appendOption(nil, tagCost, nil),
		"a header alone":      appendOption(nil, tagHeader, []byte{9, 'x'}),
		"a length too far":    {tagID, 200, 1},
		"a length beyond all": {tagID, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 'x'},
		"no end":              {tagID, 1, 'x'},
	} {
		text := stamp + string(option)
		if !strings.HasPrefix(name, "a length") && name != "no end" {
			text += "\x00\x01xpayload"
		}
		if e, err := Open(text); e != nil || !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
		if head, ok := Head(text); !ok || head.Stamp != stamp {
			t.Errorf("%s: its head is %+v", name, head)
		}
	}
	for _, text := range []string{"", stamp, "0000000000000\x00\x01x", "-643fc1fde259\x00\x01x", "0643fc1fdexyz\x00\x01x", stamp[:12]} {
		if e, err := Open(text); e != nil || !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %+v, %v", text, e, err)
		}
	}
}

// A job that costs nothing costs 1: nobody gets around the rules.
func TestCostOfNothing(t *testing.T) {
	e, err := Open(stamp + string(appendNumber(nil, tagCost, 0, 1)) + "\x00\x01x")
	if err != nil || e.Cost != 1 {
		t.Errorf("%+v, %v", e, err)
	}
}

// sound checks what holds for any bytes: Open does not panic, and what it can read stays
// as it is when it is written and read again, within its bounds.
func sound(t *testing.T, text string) {
	t.Helper()
	head, ok := Head(text)
	if ok != (head != nil) || ok && len(head.Stamp) != StampLen {
		t.Fatalf("the head of %q is %+v", text, head)
	}
	e, err := Open(text)
	switch {
	case err != nil && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrNewer):
		t.Fatalf("%q: %v", text, err)
	case e == nil && (err == nil || errors.Is(err, ErrNewer)), e != nil && errors.Is(err, ErrMalformed):
		t.Fatalf("%q: %+v and %v", text, e, err)
	case e == nil:
		return
	}
	if e.Cost < 1 || e.Priority < High || e.Priority > Low || e.Failures < 0 || e.Lost < 0 || e.MaxAttempts < 0 || e.Timeout < 0 ||
		min(e.Deadline, e.Until, e.NotBefore, e.Ready, e.Revived) < 0 || max(e.Since(), e.Begin(), e.Deadline, e.Until) > int64(maxInstant) {
		t.Fatalf("%q: out of bounds: %+v", text, e)
	}
	again, newer := Open(e.String())
	if diff := cmp.Diff(e, again, whatIsThere...); diff != "" || errors.Is(err, ErrNewer) != errors.Is(newer, ErrNewer) {
		t.Fatalf("%q: %v, then %v (-want +got):\n%s", text, err, newer, diff)
	}
}

// Every byte of a job is changed in every way, and every beginning of it is looked at.
func TestFlippedBytes(t *testing.T) {
	text := whole().String()
	for i := range text {
		sound(t, text[:i])
		for b := range 256 {
			flipped := []byte(text)
			flipped[i] = byte(b)
			sound(t, string(flipped))
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(whole().String())
	f.Add(stamp + "\x00\x04push")
	f.Add(string(appendOption([]byte(stamp), 200, []byte("new"))) + "\x00\x01x")
	f.Add(strings.Repeat("f", 13) + strings.Repeat("\x01\x01\x01", 20))
	f.Fuzz(func(t *testing.T, text string) { sound(t, text) })
}

// No two names are escaped alike, and all come back.
func TestNames(t *testing.T) {
	r := random{rand.New(rand.NewPCG(sample.SeedOf(t), 1))}
	parts := []string{"%", ":", " ", "%25", "%3A", "%20", "%2", "a", "\x00", "\xff", "25", "é"}
	seen := map[string]Lane{}
	for range 20_000 {
		lane := Lane{Priority: r.IntN(3)}
		for range r.IntN(4) {
			lane.Tenant += parts[r.IntN(len(parts))]
			lane.User += parts[r.IntN(len(parts))]
		}
		name := lane.Name()
		if other, ok := seen[name]; ok && other != lane {
			t.Fatalf("%+v and %+v are both %q", lane, other, name)
		}
		seen[name] = lane
		if strings.Contains(name, " ") || strings.Count(name, ":") != 2 {
			t.Fatalf("%+v is %q", lane, name)
		}
		if got, err := ParseLane(name); err != nil || got != lane {
			t.Fatalf("%q is %+v, %v, want %+v", name, got, err, lane)
		}
		if tenant, user := ParseScope(UserScope(lane.Tenant, lane.User)); tenant != lane.Tenant || user != lane.User {
			t.Fatalf("the user of %+v is %q, %q", lane, tenant, user)
		}
		if tenant, user := ParseScope(TenantScope(lane.Tenant)); tenant != lane.Tenant || user != "" {
			t.Fatalf("the tenant of %+v is %q, %q", lane, tenant, user)
		}
	}
	if tenant, user := ParseScope(QueueScope); tenant != "" || user != "" {
		t.Errorf("the queue is %q, %q", tenant, user)
	}
	for _, bad := range []string{"", "a", "a:b", "a:b:", "a:b:3", "a:b:11", "a:b:c:1"} {
		if lane, err := ParseLane(bad); err == nil {
			t.Errorf("%q is %+v", bad, lane)
		}
	}
}
