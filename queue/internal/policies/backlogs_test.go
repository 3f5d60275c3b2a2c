package policies

import (
	"slices"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// The label of a lane says whose backlogs count its jobs: those of the limits with a capacity, whatever stands in names and
// values, and under which policies it is read.
func TestALabelSaysWhoCounts(t *testing.T) {
	p, err := Compile("q", `
default: p
policies: {p: {user: {capacity: 5}}}
limits:
  account: {key: [tenant], capacity: 7}
  all: {capacity: 1}
  domain: {key: [keys.domain], capacity: 2, each: {big: {capacity: 9}, fast: {concurrency: 1}}}
  pair: {jobs: {type: pair}, key: [tenant, user, keys.domain, type], capacity: 3}
  plain: {key: [tenant, user], concurrency: 5}
`, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	lane := envelope.Lane{Tenant: "a, b", User: "u|&+=%:", Priority: envelope.Normal}
	for _, test := range []struct {
		env   *envelope.Envelope
		label string
		want  []string
	}{
		{&envelope.Envelope{Cost: 1}, "+user&+account=a%2C%20b&+all&plain",
			[]string{"capacity of user u|&+=%: 5", "capacity of limit account (a, b) 7", "capacity of limit all 1"}},
		{&envelope.Envelope{Cost: 1, Keys: map[string]string{"domain": "fast"}}, "+user&+account=a%2C%20b&+all&domain=fast&plain",
			[]string{"capacity of user u|&+=%: 5", "capacity of limit account (a, b) 7", "capacity of limit all 1"}},
		{&envelope.Envelope{Cost: 1, Keys: map[string]string{"domain": "big"}}, "+user&+account=a%2C%20b&+all&+domain=big&plain",
			[]string{"capacity of user u|&+=%: 5", "capacity of limit account (a, b) 7", "capacity of limit all 1", "capacity of limit domain (big) 9"}},
		{&envelope.Envelope{Cost: 1, Type: "pair", Keys: map[string]string{"domain": "+%2B&,= |:"}}, "",
			[]string{"capacity of user u|&+=%: 5", "capacity of limit account (a, b) 7", "capacity of limit all 1",
				"capacity of limit domain (+%2B&,= |:) 2", "capacity of limit pair (a, b,u|&+=%:,+%2B&,= |:,pair) 3"}},
	} {
		of := lane
		of.Label = p.Label(lane, test.env)
		if test.label != "" && of.Label != test.label || strings.ContainsAny(of.Label, " :|") {
			t.Errorf("label %q, want %q", of.Label, test.label)
		}
		var scopes, names []string
		for _, use := range p.Uses(of, test.env) {
			if use.Capacity > 0 {
				scopes, names = append(scopes, use.Scope), append(names, use.CapacityName()+" "+string(rune('0'+use.Capacity)))
			}
		}
		if got := of.Backlogs(); !slices.Equal(got, scopes) {
			t.Errorf("%q is counted by %q, want %q", of.Label, got, scopes)
		}
		if !slices.Equal(names, test.want) {
			t.Errorf("got  %q\nwant %q", names, test.want)
		}
		if read, err := envelope.ParseLane(of.Name()); err != nil || read != of {
			t.Errorf("%q is read as %+v, %v", of.Name(), read, err)
		}
	}
	for _, label := range []string{"", "plain", "a&b=c"} {
		if got := (envelope.Lane{Tenant: "t", User: "u", Label: label}).Backlogs(); got != nil {
			t.Errorf("%q is counted by %q", label, got)
		}
	}
}
