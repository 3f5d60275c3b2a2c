package main

import (
	"os"
	"os/exec"
	"regexp"
	"sync"
	"testing"
	"time"
)

// The script of docs/limits.md has its turns: two of it at once begin no more than the limit allows, each of them all that it wants.
func TestTheScriptOfTheDocs(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	page, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("no script in the page")
	}
	c := openTerminal(t)
	const token, times, apart = "a-token-that-nobody-guesses", 10, 50 * time.Millisecond
	limits := c.file("limits.yaml", "limits: {account: {shared: true, counts: jobs, rules: [{leak: 20/s}]}}\n")
	address, _, stop := c.serving(1, "--token-file", c.file("token", token), "--limits-file", limits)
	defer stop()
	script := string(block[1]) + "\nfor _ in range(10):\n    acquire('account')\n"
	began := time.Now()
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			cmd := exec.CommandContext(t.Context(), python, "-c", script)
			cmd.Env = append(os.Environ(), "WATERCLOCK_TOKEN="+token, "WATERCLOCK_URL="+address)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	both.Wait()
	if took, least := time.Since(began), (2*times-1)*apart; took < least {
		t.Errorf("%d starts took %v, want at least %v", 2*times, took, least)
	}
}
