package envelope

import (
	"strings"
	"testing"
)

// A digest is read as its members say, and written so that the same is read again.
func TestADigestIsWhatItsMembersSay(t *testing.T) {
	member := func(at int64, change func(*Envelope)) string {
		e := &Envelope{Stamp: Stamp(at), Cost: 1, MaxAttempts: 3, Priority: High, Type: "x", Payload: "of " + Stamp(at), DigestKey: "k"}
		change(e)
		return e.String()
	}
	members := []string{
		member(300, func(e *Envelope) { e.ID, e.Headers = "c", map[string]string{"h": "c"} }),
		member(100, func(e *Envelope) { e.ID, e.Cost, e.Costs = "a", 5, map[string]int{"tokens": 2} }),
		member(200, func(e *Envelope) { e.ID, e.Until, e.Costs = "b", 900, map[string]int{"tokens": 7, "calls": 1} }),
	}
	record := Stamp(100) + " 2 250 5 tokens=2"
	e, err := Open(JoinDigest(record, members))
	if err != nil {
		t.Fatal(err)
	}
	check := func(e *Envelope) {
		t.Helper()
		var ids []string
		for _, m := range e.Parts() {
			ids = append(ids, m.ID)
		}
		if strings.Join(ids, "") != "abc" || e.Stamp != Stamp(100) || e.ID != "" || e.Name() != "c" || e.Payload != "of "+Stamp(300) || e.Headers["h"] != "c" {
			t.Errorf("%v: %+v", ids, e)
		}
		if e.Cost != 5 || e.Costs["tokens"] != 7 || e.Costs["calls"] != 1 || e.Until != 0 || e.Priority != High || e.MaxAttempts != 3 || e.NotBefore != 250 || e.Begin() != 250 {
			t.Errorf("%+v", e)
		}
	}
	check(e)
	if e.Record() != record {
		t.Errorf("record %q", e.Record())
	}
	e.Failures, e.Ready, e.Error = 2, 777, "no"
	again, err := Open(e.String())
	if err != nil || again.Failures != 2 || again.Since() != 777 || again.Error != "no" || again.String() != e.String() {
		t.Errorf("%+v, %v", again, err)
	}
	check(again)
	left := again.Without(func(m *Envelope) bool { return m.ID != "b" })
	if len(left.Members) != 1 || left.Name() != "b" || left.Cost != 1 || left.Until != 900 || len(again.Members) != 3 {
		t.Errorf("%+v", left)
	}
}

// Names of digests are told apart from collapse keys, whatever those are.
func TestNamesOfDigests(t *testing.T) {
	lane := Lane{Tenant: "t", User: "u", Priority: Low, Label: "a=b&c"}
	name := DigestName{Stamp(5), DigestPlace(lane, "a key\x00 with anything")}
	read, is := ParseDigest(name.String())
	if !is || read != name || read.Key() != "a key\x00 with anything" {
		t.Errorf("%+v, %v", read, is)
	}
	for _, collapse := range []string{"", "\x00", name.String(), "\x00" + name.String(), Stamp(5), "plain"} {
		fold := FoldName(collapse)
		if _, is := ParseDigest(fold); is {
			t.Errorf("%q is a digest", collapse)
		}
		if strings.HasPrefix(collapse, "\x00") == (fold == collapse) {
			t.Errorf("%q is named %q", collapse, fold)
		}
	}
}

// What cannot be read of a digest is malformed as a whole.
func TestAMalformedDigest(t *testing.T) {
	good := (&Envelope{Stamp: Stamp(1), Cost: 1, MaxAttempts: 1, Priority: Normal, Type: "x"}).String()
	nested := JoinDigest(Stamp(1)+" 0 0 1", []string{good})
	for _, members := range [][]string{{"nonsense"}, {good, good[:10]}, {nested}} {
		if e, err := Open(JoinDigest(Stamp(1)+" 0 0 1", members)); err == nil || e != nil {
			t.Errorf("%q: %+v", members, e)
		}
	}
}
