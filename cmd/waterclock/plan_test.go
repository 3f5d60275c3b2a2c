package main

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/queue/simulate"
)

// Sixty jobs at once, under ten a second and then under five.
func TestPlan(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	var lines strings.Builder
	for i := range 60 {
		fmt.Fprintf(&lines, `{"tenant":"school","user":"u%d","type":"push","payload":{"at":1763600000.5}}`+"\n", i)
	}
	lines.WriteString(`{"tenant":"other","user":"u","type":"push","payload":{}}` + "\n\n")
	offers := c.file("offers.jsonl", lines.String())
	policies := func(name, leak string) string {
		return c.file(name, "default: p\npolicies: {p: {tenant: {rules: [{leak: "+leak+"}], capacity: 50}}}\n")
	}
	before, after := policies("before.yaml", "10/s"), policies("after.yaml", "5/s")
	args := []string{"plan", "--input", offers, "--at", "payload.at", "--against", before, "--policies", after}
	c.prints(args, "school  60    2.4s → 4.8s", "4.9s → 9.8s", "10 full → 10 full", "4.9s later", "other   1     0s → 0s")
	c.prints(append(args, "--max-wait", "school=10s", "--max-wait", "*=0s"))
	c.fails(1, "a job of tenant school would wait for 9.8s; at most 9s are allowed", append(args, "--max-wait", "school=9s")...)
	c.fails(2, "want a time such as 5m", append(args, "--max-wait", "school=9")...)
	c.fails(2, "want --input", "plan")
	c.fails(1, "no offers", "plan", "--input", c.file("none.jsonl", "\n"), "--against", before, "--policies", after)
	for line, want := range map[string]string{
		"{":                                  "none.jsonl:1: not a line of producer",
		`{"tenant":"a","user":"b","at":"x"}`: "none.jsonl:1: at \"x\"; want seconds since 1970",
		`{"tenant":"a"}`:                     "none.jsonl:1: queue: invalid job: user is missing",
		`{"tenant":"a","user":"b","priority":"x"}`: "want high, normal or low",
	} {
		c.fails(1, want, "plan", "--input", c.file("none.jsonl", line), "--against", before, "--policies", after)
	}
	c.prints([]string{"policies", "apply", before, "--yes"})
	var all []simulate.Tenant
	out := c.prints([]string{"plan", "--input", offers, "--policies", after, "--json"}) // against those in force
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 2 || all[0].After.Max-all[0].Before.Max < 4*time.Second {
		t.Errorf("%v: %s", err, out)
	}
	c.prints(append(args, "--takes", "1s", "--places", "2"), "school")
	picture := c.file("plan.svg", "")
	c.prints(append(args, "--picture", picture), "school")
	drawn, err := os.ReadFile(picture)
	if err != nil || !strings.Contains(string(drawn), ">49</text>") || strings.Count(string(drawn), `stroke-width="2"`) != 2 || xml.Unmarshal(drawn, new(struct{})) != nil {
		t.Errorf("%v: %.500s", err, drawn)
	}
	c.fails(1, "plan.svg", append(args, "--picture", "/nowhere/plan.svg")...)
}

// Limits by name count of an offer what they would count of the job: its type, keys and costs.
func TestPlanLimitsByName(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	var lines strings.Builder
	for tenant, rest := range map[string]string{
		"mail":  `"type":"mail","keys":{"domain":"a"},"costs":{"tokens":5}`,
		"chat":  `"type":"chat","keys":{"domain":"a"},"costs":{"tokens":5}`,
		"other": `"type":"mail","keys":{"domain":"b"},"costs":{"tokens":1}`,
		"none":  `"type":"mail"`,
	} {
		for i := range 3 {
			fmt.Fprintf(&lines, `{"at":1763600000,"tenant":%q,"user":"u%d",%s}`+"\n", tenant, i, rest)
		}
	}
	offers := c.file("offers.jsonl", lines.String())
	before := c.file("before.yaml", "queue: {rules: [{leak: 100000/s}]}\n")
	after := c.file("after.yaml", "limits: {domain: {jobs: {type: mail}, key: keys.domain, counts: tokens, rules: [{leak: 10/s}]}}\n")
	var all []simulate.Tenant
	out := c.prints([]string{"plan", "--input", offers, "--against", before, "--policies", after, "--json"})
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 4 {
		t.Fatalf("%v: %s", err, out)
	}
	for _, tenant := range all {
		want := map[string]time.Duration{"mail": time.Second, "other": 200 * time.Millisecond}[tenant.Tenant]
		if got := tenant.After.Max; got != want {
			t.Errorf("jobs of %s would wait for %v at most, want %v", tenant.Tenant, got, want)
		}
	}
	c.fails(1, "none.jsonl:1: not a line of producer", "plan", "--input", c.file("none.jsonl", `{"tenant":"a","user":"b","keys":["x"]}`), "--against", before, "--policies", after)
}

// A job that a limit refuses is invalid, and does not start as if the limit were not about it.
func TestPlanRefusedJobs(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	var lines strings.Builder
	for i := range 3 {
		fmt.Fprintf(&lines, `{"at":1763600000,"tenant":"bare","user":"u%d","type":"mail"}`+"\n", i)
		fmt.Fprintf(&lines, `{"at":1763600000,"tenant":"whole","user":"u%d","type":"mail","keys":{"domain":"a"}}`+"\n", i)
		fmt.Fprintf(&lines, `{"at":1763600000,"tenant":"dear","user":"u%d","type":"mail","cost":7,"keys":{"domain":"a"}}`+"\n", i)
	}
	offers := c.file("offers.jsonl", lines.String())
	before := c.file("before.yaml", "policies: {}\n")
	after := c.file("after.yaml", "limits: {domain: {key: keys.domain, missing: refuse, rules: [{window: 5/1h}]}}\n")
	c.prints([]string{"plan", "--input", offers, "--against", before, "--policies", after}, "0 → 3 invalid", "0 → 0", "0 → 3 impossible")
}
