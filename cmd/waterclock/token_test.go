package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
)

// A token that new makes, put into the file of a running serve, opens what it is for and nothing else, and check says what that is.
func TestTokens(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	file := c.file("tokens.yaml", "tokens: []\n")
	address, _, stop := c.serving(1, "--tokens-file", file, "--sign-in")
	defer stop()
	printed := c.prints([]string{"token", "new", "grafana", "--scopes", "read", "--queues", "push,mail-*", "--for", "1h"}, "it is shown once")
	token, _, _ := strings.Cut(printed, "\n")
	_, entry, found := strings.Cut(printed, "tokens:\n")
	if !found || strings.Contains(entry, token) {
		t.Fatalf("printed %s", printed)
	}
	if got := c.ask(address+"/v1/queues/push", token); !strings.HasPrefix(got, "401 ") {
		t.Errorf("before it is in the file: %s", got)
	}
	if err := os.WriteFile(file, []byte("tokens:\n"+entry), 0o600); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 10*time.Second, "the token counts", func() bool {
		return strings.HasPrefix(c.ask(address+"/v1/queues/push", token), "200 ")
	})
	if got := c.ask(address+"/v1/queues/other/health", token); !strings.HasPrefix(got, "403 ") || !strings.Contains(got, "token grafana lacks the scope read for queue") {
		t.Error(got)
	}
	if got := c.ask(address+"/dashboard/push/", ""); !strings.Contains(got, "Sign in") || strings.Contains(got, "Waiting") {
		t.Errorf("the dashboard, without signing in: %s", got)
	}
	second := c.prints([]string{"token", "new", "grafana", "--scopes", "read", "--file", file})
	redistest.Eventually(t, 10*time.Second, "both tokens count", func() bool {
		return strings.HasPrefix(c.ask(address+"/v1/queues/push", strings.TrimSpace(second)), "200 ") && strings.HasPrefix(c.ask(address+"/v1/queues/push", token), "200 ")
	})
	c.prints([]string{"token", "check", file}, "grafana  read    push mail-*  20")
	c.fails(1, "tokens.yaml:2: tokens[0].scopes: \"all\"; want offer", "token", "check", c.file("tokens.yaml", "tokens:\n- {name: a, hash: sha256:"+strings.Repeat("0a", 32)+", scopes: [all]}\n"))
	c.fails(2, "tokens.yaml:1: token: unknown key; want tokens", "serve", "--http", "127.0.0.1:0", "--tokens-file", c.file("tokens.yaml", "token: x"))
	c.fails(2, "--sign-in: nobody could sign in", "serve", "--http", "127.0.0.1:0", "--sign-in")
	c.fails(2, `scopes: "admin"; want offer, read, steer or decide`, "token", "new", "x", "--scopes", "admin")
	c.fails(2, "want the name of who is to have it", "token", "new")
}

// new adds an entry to a file of any form that it can, and leaves what it cannot as it is.
func TestTokenIntoAFile(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	hash := "sha256:" + strings.Repeat("0a", 32)
	for name, before := range map[string]string{
		"none": "", "an empty list": "tokens: []\n", "a comment": "# ours\ntokens:\n- name: a # she\n  hash: " + hash + "\n  scopes: [decide]",
		"indented": "tokens:\n      - {name: a, hash: " + hash + ", scopes: [decide]}\n\n",
	} {
		file := c.file("tokens.yaml", before)
		if before == "" {
			os.Remove(file)
		}
		c.prints([]string{"token", "new", "b", "--scopes", "read,decide", "--file", file}, "wct_")
		c.prints([]string{"token", "new", "c", "--file", file}, "wct_")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), strings.TrimSuffix(strings.TrimRight(before, "\n"), " []")) {
			t.Errorf("%s: it has become\n%s", name, text)
		}
		c.prints([]string{"token", "check", file}, "b     read decide  push    never", "c     read ")
	}
	flow := "tokens: [{name: a, hash: " + hash + ", scopes: [decide]}]\n"
	for before, want := range map[string]string{flow: "an entry cannot be added to a list of this form", "tokens: [x]\n": "tokens.yaml:1: tokens[0]"} {
		file := c.file("tokens.yaml", before)
		c.fails(1, want, "token", "new", "b", "--file", file)
		if text, err := os.ReadFile(file); err != nil || string(text) != before {
			t.Errorf("it has become %s, %v", text, err)
		}
	}
}
