package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue/access"
)

// root is the directory of the repository.
const root = "../../.."

// serveCommand runs waterclock serve on a Redis of its own, with policies, limits and a token, until the test ends.
func serveCommand(t *testing.T, files map[string]string) (url string) {
	server := redistest.Start(t)
	dir := t.TempDir()
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	program := filepath.Join(dir, "waterclock")
	run(t, root, nil, "go", "build", "-o", program, "./cmd/waterclock")
	run(t, dir, nil, program, "policies", "apply", "policies.yaml", "--yes", "--redis", server.URL())
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "serve", "--http", "127.0.0.1:0", "--redis", server.URL(), "--tokens-file", "tokens.yaml", "--limits-file", "limits.yaml")
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // it was told to end
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	found := regexp.MustCompile(`http://[^/]+`).FindString(line)
	if found == "" {
		t.Fatalf("it prints %s", line)
	}
	return found
}

// run runs a command, which has to succeed, and returns what it prints.
func run(t *testing.T, dir string, env []string, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), append(env, "GOWORK=off", "CGO_ENABLED=0")...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

// copyOf copies the files of a directory, without its directories.
func copyOf(t *testing.T, from string) (to string) {
	to = t.TempDir()
	entries, err := os.ReadDir(from)
	must(t, err)
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(from, entry.Name()))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(to, entry.Name()), text, 0o600))
	}
	return to
}

// block returns a block of code in docs/api.md that holds a text.
func block(t *testing.T, kind, holds string) string {
	page, err := os.ReadFile(root + "/docs/api.md")
	must(t, err)
	for _, found := range regexp.MustCompile("(?ms)^```"+kind+"\n(.*?)^```").FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(found[1], holds) {
			return found[1]
		}
	}
	t.Fatalf("docs/api.md has no block of %s with %s", kind, holds)
	return ""
}

// A client in TypeScript that is generated from a running serve type-checks and does what main.ts and docs/api.md say; with the
// versions that docs/api.md names, and the commands.
func TestTypeScriptClient(t *testing.T) {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("no " + program)
		}
	}
	const token = "a-token-that-nobody-guesses"
	url := serveCommand(t, map[string]string{
		"policies.yaml": "default: standard\npolicies: {standard: {user: {rules: [{window: 2/1h}]}}}\n",
		"limits.yaml":   "limits: {mails: {key: [tenant, user], counts: jobs, rules: [{window: 2/1h}]}}\n",
		"tokens.yaml":   "tokens: [{name: panel, hash: " + access.Hash(token) + ", scopes: [offer, steer, decide], queues: [push]}]\n",
	})
	env := []string{"WATERCLOCK_URL=" + url, "WATERCLOCK_TOKEN=" + token}
	dir := copyOf(t, "typescript")
	if out, err := exec.CommandContext(t.Context(), "npm", "ping").CombinedOutput(); err != nil {
		t.Skipf("npm has no registry: %s", out)
	}
	must(t, os.WriteFile(filepath.Join(dir, "docs.ts"), []byte(block(t, "ts", "createClient")), 0o600))
	for command := range strings.Lines(block(t, "sh", "npm ci")) {
		if strings.HasPrefix(command, "cd ") {
			continue
		}
		begin := time.Now()
		run(t, dir, env, "bash", "-euc", command)
		t.Logf("%s: %v", strings.TrimSpace(command), time.Since(begin).Round(100*time.Millisecond))
	}
	if out := run(t, dir, env, "node", "build/docs.js"); !strings.Contains(out, "accepted") {
		t.Errorf("the program of docs/api.md prints %s", out)
	}
}

// The versions and the command in docs/api.md are those that are tested.
func TestTypeScriptVersions(t *testing.T) {
	file, err := os.Open("typescript/package.json")
	must(t, err)
	defer file.Close()
	text, err := io.ReadAll(file)
	must(t, err)
	var its struct{ Scripts, Dependencies, DevDependencies map[string]string }
	must(t, json.Unmarshal(text, &its))
	commands := block(t, "sh", "npm install")
	maps.Copy(its.Dependencies, its.DevDependencies)
	for _, name := range slices.Sorted(maps.Keys(its.Dependencies)) {
		if want := name + "@" + its.Dependencies[name]; !strings.Contains(commands, want) {
			t.Errorf("docs/api.md lacks %s: %s", want, commands)
		}
	}
	if want := "npx " + its.Scripts["generate"]; !strings.Contains(commands, want) {
		t.Errorf("docs/api.md lacks %s: %s", want, commands)
	}
}
