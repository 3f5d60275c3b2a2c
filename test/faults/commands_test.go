package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/redistest"
)

// commands builds the commands and returns the directory that they are in.
func commands(t *testing.T) string {
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "../../cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as they are released
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the commands: %v\n%s", err, out)
	}
	return dir
}

const someRules = "default: p\npolicies: {p: {user: {rules: [{spacing: 2ms}, {window: 100/1s}]}}}\n"

// What a user needs who may do nothing but run the commands.
var permissions = []string{
	"~wc:{push}:*", "~wc:{notify}:*", "~wc:queues", "~asynq:*", "&asynq:*",
	"+@read", "+@write", "+@scripting", "+@transaction", "+@pubsub", "+@connection", "+time", "+info",
}

// Both doors, and the end of the way, on every kind of Redis that a URL can name.
func TestFaultlessCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("builds both commands")
	}
	dir := commands(t)
	certificate := redistest.NewCertificate(t)
	trust := "SSL_CERT_FILE=" + certificate.File
	user := append([]string{"--user", "default", "off", "--user", "clock", "on", ">s/cr:t"}, permissions...)
	reaches := map[string]struct{ url, env string }{
		"user and password": {"redis://clock:s%2Fcr:t@" + redistest.Start(t, user...).Addr, ""},
		"TLS":               {"rediss://" + redistest.StartTLS(t, certificate).Addr, trust},
		"TLS, user and password": {
			"rediss://clock:s%2Fcr:t@" + redistest.StartTLS(t, certificate, user...).Addr + "/0", trust,
		},
		"sentinels": {redistest.StartSentinels(t).URL(), ""},
		"cluster":   {redistest.StartNodes(t, 3).URL(), ""},
	}
	for name, to := range reaches {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deliver(t, dir, to.url, to.env)
		})
	}
}

// deliver offers 40 jobs through each door, lets a worker deliver all 80, and releases one more
// to asynq.
func deliver(t *testing.T, dir, url, env string) {
	run := func(command, stdin string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, command), append(args, "--redis", url, "--queue=push")...)
		cmd.Env = append(os.Environ(), env)
		cmd.Stdin = strings.NewReader(stdin)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil || strings.Contains(stderr.String(), "level=WARN") || strings.Contains(stderr.String(), "level=ERROR") {
			t.Fatalf("%s: %v\n%s", command, err, stderr.String())
		}
		return string(out)
	}
	for _, door := range []string{"lanes", "asynq"} {
		var jobs strings.Builder
		for i := range 40 {
			fmt.Fprintf(&jobs, `{"id":"%s-%d","tenant":"t","user":"u%d","type":"push","payload":{}}`+"\n", door, i, i%4)
		}
		var summary struct{ Offered, Accepted int }
		out := run("producer", jobs.String(), "--via="+door, "--json", "--quiet")
		if err := json.Unmarshal([]byte(out), &summary); err != nil || summary.Accepted != 40 {
			t.Fatalf("%v: %s", err, out)
		}
	}
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(policies, []byte(someRules), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := run("worker", "", "--policies", policies, "--sender", "log", "--drain"); strings.Count(out, "\n") != 80 {
		t.Errorf("%d starts, want 80", strings.Count(out, "\n"))
	}
	run("producer", `{"tenant":"t","user":"u","type":"push","payload":{}}`+"\n", "--quiet")
	run("worker", "", "--sender", "forward", "--forward-queue", "released", "--inbox=false", "--drain")
	rdb, err := config.OpenRedis(t.Context(), url)
	if err != nil {
		if env != "" { // this process does not trust the certificate
			return
		}
		t.Fatal(err)
	}
	defer rdb.Close()
	if n, err := rdb.LLen(t.Context(), "asynq:{released}:pending").Result(); err != nil || n != 1 {
		t.Errorf("%d tasks were released, want 1: %v", n, err)
	}
}
