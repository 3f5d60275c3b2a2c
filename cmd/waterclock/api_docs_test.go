package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/access"
)

// What docs/api.md shows works: each call of curl is answered as the block behind it says, up
// to the values.
func TestTheCallsOfTheDocs(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl")
	}
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	c := openTerminal(t)
	c.prints([]string{"policies", "apply", c.file("p.yaml", "default: standard\npolicies: {standard: {user: {rules: [{window: 10/1m}]}}}\n"), "--yes"})
	c.offer(queue.Job{Tenant: "school-9", User: "teacher-1", Type: "push"})
	const token = "a-token-that-nobody-guesses"
	const readToken = "a-token-that-only-reads"
	tokens := c.file("tokens.yaml", "tokens: [{name: grafana, hash: "+access.Hash(readToken)+", scopes: [read], queues: [push]}]\n")
	address, _, stop := c.serving(1, "--token-file", c.file("token", token), "--tokens-file", tokens, "--limits-file", c.file("limits.yaml", limitsOf(t, string(page))))
	defer stop()
	calls := callsOf(string(page))
	if len(calls) < 4 {
		t.Fatalf("%d calls in the page", len(calls))
	}
	for _, call := range calls {
		cmd := exec.Command("bash", "-euc", call.command)
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), "WATERCLOCK_TOKEN="+token, "WATERCLOCK_READ_TOKEN="+readToken, "WATERCLOCK_URL="+address)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s%v: %s", call.command, err, out)
			continue
		}
		if got, want := shape(t, string(out)), shape(t, call.answer); got != want {
			t.Errorf("%s\nis answered with %s\nof the form     %s\nthe docs say    %s", call.command, out, got, want)
		}
	}
}

// A documentedCall is a command, and the answer that the page shows right behind it.
type documentedCall struct{ command, answer string }

func callsOf(page string) (calls []documentedCall) {
	blocks := regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```\n").FindAllStringSubmatchIndex(page, -1)
	for i := range len(blocks) - 1 {
		this, next := blocks[i], blocks[i+1]
		if page[this[2]:this[3]] == "sh" && page[next[2]:next[3]] == "json" && this[1] == next[0] {
			calls = append(calls, documentedCall{page[this[4]:this[5]], page[next[4]:next[5]]})
		}
	}
	return calls
}

// limitsOf returns the file of limits in the page.
func limitsOf(t *testing.T, page string) string {
	block := regexp.MustCompile("(?s)```yaml\n(limits:.*?)```").FindStringSubmatch(page)
	if block == nil {
		t.Fatal("no limits in the page")
	}
	return block[1]
}

// shape returns the fields of a document, without their values.
func shape(t *testing.T, text string) string {
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	var of func(value any) string
	of = func(value any) string {
		switch v := value.(type) {
		case map[string]any:
			fields := make(map[string]string)
			for name, value := range v {
				fields[name] = of(value)
			}
			return strings.TrimPrefix(fmt.Sprint(fields), "map")
		case []any:
			if len(v) > 0 {
				return "[" + of(v[0]) + "]"
			}
			return "[]"
		}
		return fmt.Sprintf("%T", value)
	}
	return of(value)
}
