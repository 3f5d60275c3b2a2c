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
	c.prints([]string{"token", "check", file}, "grafana  read    push mail-*  20")
	c.fails(1, "tokens.yaml:2: tokens[0].scopes: \"all\"; want offer", "token", "check", c.file("tokens.yaml", "tokens:\n- {name: a, hash: sha256:"+strings.Repeat("0a", 32)+", scopes: [all]}\n"))
	c.fails(2, "tokens.yaml:1: token: unknown key; want tokens", "serve", "--http", "127.0.0.1:0", "--tokens-file", c.file("tokens.yaml", "token: x"))
	c.fails(2, "--sign-in: nobody could sign in", "serve", "--http", "127.0.0.1:0", "--sign-in")
	c.fails(2, `scopes: "admin"; want offer, read, steer or decide`, "token", "new", "x", "--scopes", "admin")
	c.fails(2, "want the name of who is to have it", "token", "new")
}
