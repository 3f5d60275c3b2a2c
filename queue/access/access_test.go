package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
)

func text(name string) string { return name + "-has-a-long-token" }

// hashOf is the hash of a token as sha256sum prints it.
func hashOf(name string) string {
	sum := sha256.Sum256([]byte(text(name)))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func entry(name, rest string) string {
	return fmt.Sprintf("  - name: %s\n    hash: %s\n    %s\n", name, hashOf(name), rest)
}

// A patterns' table: which queues a token is for.
func TestQueues(t *testing.T) {
	for pattern, queues := range map[string]string{
		"push":   "+push -pushed -pus -apush",
		"*":      "+push + +a/b",
		"mail-*": "+mail-eu +mail- -mail -xmail-eu",
		"*-eu":   "+mail-eu +-eu -mail-euro",
		"a*b*c":  "+abc +aXbYc +abbc +abcbc -ac -ab -bc -acb -abcx",
		"a*a":    "+aa +aba -a",
		"a**b":   "+ab +axb -a",
	} {
		token := Token{Scopes: []Scope{Read}, Queues: []string{"nothing-else", pattern}}
		for _, queue := range strings.Fields(queues) {
			if want := queue[0] == '+'; token.Sees(queue[1:]) != want {
				t.Errorf("%s fits %s: %v", pattern, queue[1:], !want)
			}
		}
	}
}

func TestScopes(t *testing.T) {
	for has, may := range map[Scope][]Scope{Offer: {Offer}, Read: {Read}, Steer: {Read, Steer}, Decide: {Decide}} {
		token := Token{Scopes: []Scope{has}, Queues: []string{"push"}}
		for _, do := range Scopes() {
			want := false
			for _, s := range may {
				want = want || s == do
			}
			if token.May(do, "push") != want || token.Has(do) != want {
				t.Errorf("%s may %s: %v", has, do, !want)
			}
			if token.May(do, "mail") != (want && do == Decide) {
				t.Errorf("%s may %s in another queue: %v", has, do, token.May(do, "mail"))
			}
		}
	}
	for _, do := range Scopes() {
		if (Token{}).May(do, "push") || (Token{}).May(do, "") || !whole("x").May(do, "push") {
			t.Error("the zero token allows something, or the whole one does not")
		}
	}
}

func TestAuthor(t *testing.T) {
	named, whole := Token{Name: "panel"}, Token{}
	for got, want := range map[string]string{
		named.Author(""): "panel", named.Author("panel"): "panel", named.Author("ann"): "panel (ann)", whole.Author("bob"): "bob", whole.Author(""): "",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

const rest = "scopes: [offer]\n    queues: [push]"

// One bad token among good ones: the file is refused, with its line and field, what would be right, and no hash.
func TestMistakes(t *testing.T) {
	good := entry("good", rest)
	for name, test := range map[string]struct{ text, want string }{
		"empty":          {"", ":1: the file is empty; want tokens: []"},
		"comment":        {"# nothing\n", ":1: the file is empty"},
		"no YAML":        {"tokens:\n\t- x", ":2: not YAML"},
		"two documents":  {"tokens: []\n---\ntokens: []\n", ":2: a second document begins"},
		"unknown key":    {"token: []\n", ":1: token: unknown key; want tokens"},
		"no list":        {"tokens: {a: b}\n", ":1: tokens: keys and values; want a list of tokens"},
		"nothing":        {"tokens:\n", ":1: tokens: nothing; want a list of tokens"},
		"a text":         {"tokens: [x]\n", `:1: tokens[0]: "x"; want the keys name, hash, scopes, queues, expires`},
		"unknown field":  {"tokens:\n" + good + entry("bad", rest+"\n    scope: x"), ":10: tokens[1].scope: unknown key"},
		"twice":          {"tokens:\n" + good + entry("bad", rest+"\n    name: x"), ":10: tokens[1].name: appears twice"},
		"no name":        {"tokens:\n" + good + "  - hash: " + hashOf("bad") + "\n", ":6: tokens[1].name: is missing; want who it is"},
		"strange name":   {"tokens:\n" + good + entry(`"a\nb"`, rest), `:6: tokens[1].name: "a\nb"; want who`},
		"name in braces": {"tokens:\n" + good + entry(`"a (root)"`, rest), `:6: tokens[1].name: "a (root)"; want who`},
		"plain token":    {"tokens:\n" + strings.Replace(good, hashOf("good"), "wct_secret-secret-secret", 1), ":3: tokens[0].hash: is none; want sha256: and 64 hexadecimal digits"},
		"short hash":     {"tokens:\n" + strings.Replace(good, hashOf("good"), hashOf("good")[:60], 1), ":3: tokens[0].hash: is none"},
		"no scopes":      {"tokens:\n" + good + entry("bad", "queues: [push]"), ":6: tokens[1].scopes: is missing"},
		"empty scopes":   {"tokens:\n" + good + entry("bad", "scopes: []\n    queues: [push]"), ":8: tokens[1].scopes: an empty list; want a list such as [offer]"},
		"unknown scope":  {"tokens:\n" + good + entry("bad", "scopes: [read, admin]\n    queues: [push]"), `:8: tokens[1].scopes: "admin"; want offer, read, steer or decide`},
		"one scope":      {"tokens:\n" + good + entry("bad", "scopes: read\n    queues: [push]"), `:8: tokens[1].scopes: "read"; want a list`},
		"no queues":      {"tokens:\n" + good + entry("bad", "scopes: [read]"), `:6: tokens[1].queues: is missing; want a list of names, exact or with *, such as [push, mail-*]; ["*"] is all`},
		"a queue":        {"tokens:\n" + good + entry("bad", "scopes: [read]\n    queues: [a b]"), `:9: tokens[1].queues: "a b"; want the name of a queue`},
		"useless queues": {"tokens:\n" + good + entry("bad", "scopes: [decide]\n    queues: [push]"), ":9: tokens[1].queues: means nothing for scope decide"},
		"no instant":     {"tokens:\n" + good + entry("bad", rest+"\n    expires: tomorrow"), `:10: tokens[1].expires: "tomorrow"; want an instant such as`},
		"same token":     {"tokens:\n" + good + entry("good", rest), ":6: tokens[1].hash: is that of the token in line 2"},
	} {
		_, err := Parse("tokens.yaml", []byte(test.text))
		if !errors.Is(err, ErrInvalidFile) || !strings.HasPrefix(err.Error(), "tokens.yaml"+test.want) {
			t.Errorf("%s: %v; want tokens.yaml%s", name, err, test.want)
			continue
		}
		if regexp.MustCompile(`[0-9a-f]{20}|secret-secret`).MatchString(err.Error()) {
			t.Errorf("%s: a hash, or a token, in %v", name, err)
		}
	}
}

// write replaces a file, in one step: nobody reads half of it.
func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// opened are the tokens of a file in virtual time, while they run, and what is logged.
func opened(t *testing.T, cfg Config, text string) (tokens *Tokens, log *redistest.Buffer) {
	cfg.File = filepath.Join(t.TempDir(), "tokens.yaml")
	log = new(redistest.Buffer)
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	write(t, cfg.File, text)
	tokens, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tokens.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return tokens, log
}

// The file is read again when it has changed, while others ask. What has a mistake is refused as a whole, and told once; what is in
// force stays.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both := "tokens:\n" + entry("one", rest) + entry("two", rest)
		tokens, log := opened(t, Config{Token: text("whole")}, "tokens:\n"+entry("one", rest))
		var asking sync.WaitGroup
		done := make(chan struct{})
		for range 4 {
			asking.Go(func() {
				for {
					select {
					case <-done:
						return
					case <-time.After(7 * time.Millisecond):
						if _, err := tokens.Find(text("whole")); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		for _, step := range []struct{ what, text, valid, log string }{
			{"nothing", "tokens:\n" + entry("one", rest), "one", ""},
			{"a second one", both, "one two", "new tokens"},
			{"a mistake", both + entry("three", "scopes: [admin]"), "one two", `refused the tokens; the old ones stay" err="` + tokens.cfg.File + `:12: tokens[2].scopes: \"admin\"; want offer`},
			{"the same mistake", both + entry("three", "scopes: [admin]"), "one two", ""},
			{"half of a file", both[:len(both)/2], "one two", "refused the tokens"},
			{"as before", both, "one two", "new tokens"},
			{"the first one is gone", "tokens:\n" + entry("two", rest), "two", "new tokens"},
			{"the file is gone", "-", "two", "no such file"},
			{"none", "tokens: []\n", "", "new tokens"},
		} {
			before := len(log.String())
			if step.text == "-" {
				os.Remove(tokens.cfg.File)
			} else {
				write(t, tokens.cfg.File, step.text)
			}
			time.Sleep(3 * time.Second)
			var valid []string
			for _, name := range []string{"one", "two", "three"} {
				if token, err := tokens.Find(text(name)); err == nil && token.Name == name {
					valid = append(valid, name)
				}
			}
			if got := strings.Join(valid, " "); got != step.valid {
				t.Errorf("%s: %s count, want %s", step.what, got, step.valid)
			}
			said := log.String()[before:]
			if step.log == "" && said != "" || !strings.Contains(said, step.log) || strings.Count(said, "\n") > 1 {
				t.Errorf("%s: it says %q, want %q", step.what, said, step.log)
			}
		}
		close(done)
		asking.Wait()
	})
}

// A token expires at its instant, and says so; the others do not.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := time.Now().Add(time.Hour).UTC()
		tokens, _ := opened(t, Config{}, "tokens:\n"+entry("old", rest+"\n    expires: "+ends.Format(time.RFC3339))+entry("new", rest))
		old, err := tokens.Find(text("old"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(ends) - time.Microsecond)
		if _, err := tokens.Find(text("old")); err != nil {
			t.Errorf("a moment before: %v", err)
		}
		time.Sleep(time.Microsecond)
		for _, find := range []func() (Token, error){
			func() (Token, error) { return tokens.Find(text("old")) }, func() (Token, error) { return tokens.ByID(old.ID()) },
		} {
			if token, err := find(); !errors.Is(err, ErrExpired) || !strings.Contains(err.Error(), "old, at "+ends.Format(time.RFC3339)) || token.Has(Offer) {
				t.Errorf("%+v, %v", token, err)
			}
		}
		if token, err := tokens.Find(text("new")); err != nil || token.Name != "new" {
			t.Errorf("%+v, %v", token, err)
		}
	})
}

// Every token of a file is found, by its text and its ID, and nothing else is.
func TestFind(t *testing.T) {
	all := "tokens:\n"
	for i := range 20 {
		all += entry(fmt.Sprint("token", i), rest)
	}
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, file, all)
	tokens, err := Open(Config{File: file, Token: text("whole")})
	if err != nil || tokens.Len() != 21 {
		t.Fatal(tokens.Len(), err)
	}
	ids := make(map[string]bool)
	for i := range 20 {
		name := fmt.Sprint("token", i)
		token, err := tokens.Find(text(name))
		if err != nil || token.Name != name {
			t.Errorf("%s is %s, %v", name, token.Name, err)
		}
		again, err := tokens.ByID(token.ID())
		if err != nil || again.Name != name || ids[token.ID()] || strings.Contains(hashOf(name), token.ID()) {
			t.Errorf("%s has the ID of %s, %v", name, again.Name, err)
		}
		ids[token.ID()] = true
	}
	if whole, err := tokens.Find(text("whole")); err != nil || !whole.May(Steer, "any") {
		t.Error(whole, err)
	}
	for _, wrong := range []string{"", text("token"), text("token1") + " ", hashOf("token1"), strings.TrimPrefix(hashOf("token1"), "sha256:"), text("whole")[1:]} {
		if _, err := tokens.Find(wrong); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %v", wrong, err)
		}
		if _, err := tokens.ByID(wrong); !errors.Is(err, ErrUnknown) {
			t.Errorf("ID %q: %v", wrong, err)
		}
	}
}

// A new token can be put into a file, and its hash is what sha256sum says.
func TestNew(t *testing.T) {
	token, hash := New()
	sum := sha256.Sum256([]byte(token))
	if hash != "sha256:"+hex.EncodeToString(sum[:]) || len(token) < 40 || strings.ContainsAny(token, " \n") {
		t.Errorf("%s, %s", token, hash)
	}
	if again, _ := New(); again == token {
		t.Error("the same one")
	}
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, file, "tokens: [{name: a, hash: "+hash+", scopes: [offer, decide], queues: [push]}]")
	tokens, err := Open(Config{File: file})
	if err != nil {
		t.Fatal(err)
	}
	if found, err := tokens.Find(token); err != nil || !found.May(Offer, "push") || !found.May(Decide, "") {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestConfig(t *testing.T) {
	for want, cfg := range map[string]Config{
		"want one of them":                         {},
		"the token has 15 bytes; want at least 16": {Token: strings.Repeat("x", MinLength-1)},
		"white space in the token":                 {Token: text("a") + "\n"},
		"no such file":                             {File: filepath.Join(t.TempDir(), "none")},
	} {
		if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	key := func(token string) string {
		tokens, err := Open(Config{Token: token})
		if err != nil {
			t.Fatal(err)
		}
		if string(tokens.Key("a")) == string(tokens.Key("b")) {
			t.Error("one key for two purposes")
		}
		return string(tokens.Key("a"))
	}
	one, same := strings.Repeat("x", MinLength), strings.Repeat("x", MinLength)
	if key(one) != key(same) || key(one) == key(one+"y") {
		t.Error("the key is not that of the token")
	}
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, file, "tokens: []")
	first, _ := Open(Config{File: file})
	second, err := Open(Config{File: file})
	if err != nil || string(first.Key("a")) == string(second.Key("a")) {
		t.Error("a key that is known", err)
	}
}

// Whatever a file holds, it is refused with a line, or read.
func FuzzParse(f *testing.F) {
	f.Add("tokens:\n" + entry("a", rest))
	f.Add("tokens: [{name: a, hash: x, scopes: [read], queues: ['*'], expires: 2027-01-01T00:00:00Z}, &a {}, *a]")
	f.Add("a: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := Parse("f", []byte(text))
		if err != nil && !regexp.MustCompile(`^f:[1-9][0-9]*: `).MatchString(err.Error()) {
			t.Errorf("%q: %v", text, err)
		}
		for _, token := range tokens {
			if err == nil && (token.Name == "" || len(token.Scopes) == 0 || token.hash == [32]byte{}) {
				t.Errorf("%q: %+v", text, token)
			}
		}
	})
}
