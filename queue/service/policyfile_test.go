package service

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const someLimits = "default: a\npolicies: {a: {user: {rules: [{spacing: 20ms}]}}}\n"

// Every kind of change of the file, looked at one by one.
func TestReload(t *testing.T) {
	client := redistest.Mini(t)
	file := filepath.Join(t.TempDir(), "policies.yaml")
	var log redistest.Buffer
	write(t, file, someLimits)
	p, err := ReadPolicyFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p.Logger = slog.New(slog.NewTextHandler(&log, nil))
	if err := p.Apply(t.Context(), client, "one", "two"); err != nil {
		t.Fatal(err)
	}
	later := time.Now()
	steps := []struct {
		what, text  string
		asked       bool
		wantDefault string // in force afterwards
		wantLog     string
	}{
		{"nothing", someLimits, false, "a", ""},
		{"touched", someLimits, false, "a", ""},
		{"asked", someLimits, true, "a", "new policies"},
		{"mistake", "standart: a\n", false, "a", file + ":1: standart: unknown key; want partitions, queue, default, policies, tenants or limits"},
		{"same mistake", "standart: a\n", false, "a", ""},
		{"same mistake, asked", "standart: a\n", true, "a", "refused the policies; the old ones stay"},
		{"other mistake", "", false, "a", file + ":1: the file is empty"},
		{"as before", someLimits, false, "a", "new policies"},
		{"new ones", "default: b\npolicies: {b: {}}\n", false, "b", "new policies"},
		{"gone", "-", false, "b", "no such file or directory"},
		{"still gone", "-", false, "b", ""},
		{"back", "default: c\npolicies: {c: {}}\n", false, "c", "new policies"},
	}
	for _, step := range steps {
		if step.text == "-" {
			os.Remove(file)
		} else {
			write(t, file, step.text)
			// Two writes within one tick of the file system's clock look alike.
			later = later.Add(time.Second)
			if err := os.Chtimes(file, later, later); err != nil {
				t.Fatal(err)
			}
		}
		before := len(log.String())
		p.reload(t.Context(), step.asked)
		said := log.String()[before:]
		if step.wantLog == "" && said != "" || !strings.Contains(said, step.wantLog) || strings.Count(said, "\n") > 1 {
			t.Errorf("%s: it says %q, want %q", step.what, said, step.wantLog)
		}
		for _, name := range p.queues {
			inspector, err := queue.NewInspector(client, name)
			if err != nil {
				t.Fatal(err)
			}
			if in, err := inspector.Policies(t.Context()); err != nil || in.Policies.Default != step.wantDefault {
				t.Errorf("%s: the default of queue %s is %q, %v, want %q", step.what, name, in.Policies.Default, err, step.wantDefault)
			}
		}
	}
}

// A change that could not be put into Redis is put there later.
func TestReloadWithoutRedis(t *testing.T) {
	gone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer gone.Close()
	file := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, file, someLimits)
	p, err := ReadPolicyFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var log redistest.Buffer
	p.Logger = slog.New(slog.NewTextHandler(&log, nil))
	if err := p.Apply(t.Context(), gone, "one"); err == nil {
		t.Error("the policies are in a Redis that is not there")
	}
	p.reload(t.Context(), true)
	if !p.owed || !strings.Contains(log.String(), "setting the policies; trying again") {
		t.Errorf("owed %v: %s", p.owed, log.String())
	}
	p.rdb = redistest.Mini(t)
	p.reload(t.Context(), false)
	if p.owed || !strings.Contains(log.String(), "new policies") {
		t.Errorf("owed %v: %s", p.owed, log.String())
	}
}

// Kubernetes changes a ConfigMap's file by another target of a link in its path, and not by a write.
func TestReloadOfConfigMap(t *testing.T) {
	dir := t.TempDir()
	then := time.Now().Add(-time.Hour)
	publish := func(version, limits string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, version, "policies.yaml")
		write(t, file, limits)
		then = then.Add(time.Second)
		next := filepath.Join(dir, "..data_tmp")
		for _, err := range []error{os.Chtimes(file, then, then), os.Symlink(version, next), os.Rename(next, filepath.Join(dir, "..data"))} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	publish("..first", "default: a\npolicies: {a: {}}\n")
	file := filepath.Join(dir, "policies.yaml")
	if err := os.Symlink("..data/policies.yaml", file); err != nil {
		t.Fatal(err)
	}
	p, err := ReadPolicyFile(file)
	if err != nil {
		t.Fatal(err)
	}
	client := redistest.Mini(t)
	p.Logger = slog.New(slog.DiscardHandler)
	if err := p.Apply(t.Context(), client, "one"); err != nil {
		t.Fatal(err)
	}
	publish("..second", "default: b\npolicies: {b: {}}\n")
	p.reload(t.Context(), false)
	inspector, err := queue.NewInspector(client, "one")
	if err != nil {
		t.Fatal(err)
	}
	if in, err := inspector.Policies(t.Context()); err != nil || in.Policies.Default != "b" {
		t.Errorf("the default is %q, %v, want b", in.Policies.Default, err)
	}
}

// A file with another number of partitions than the queue has is refused: once in the log, and until it has the right one.
func TestAnotherNumberOfPartitions(t *testing.T) {
	client := redistest.Mini(t)
	file := filepath.Join(t.TempDir(), "policies.yaml")
	open := func(text string) *PolicyFile {
		t.Helper()
		write(t, file, text)
		p, err := ReadPolicyFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := open("partitions: 4\n" + someLimits)
	if err := p.Apply(t.Context(), client, "one"); err != nil {
		t.Fatal(err)
	}
	var log redistest.Buffer
	p.Logger = slog.New(slog.NewTextHandler(&log, nil))
	write(t, file, "partitions: 3\ndefault: b\npolicies: {b: {}}\n")
	for range 3 {
		p.reload(t.Context(), false)
	}
	if said := log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "refused the policies; the old ones stay") || !strings.Contains(said, "has 4 partitions, not 3") {
		t.Errorf("it says %s", said)
	}
	write(t, file, "default: c\npolicies: {c: {}}\n")
	p.reload(t.Context(), false)
	inspector, err := queue.NewInspector(client, "one")
	if err != nil {
		t.Fatal(err)
	}
	in, err := inspector.Policies(t.Context())
	if err != nil || in.Policies.Default != "c" || in.Policies.Partitions != 4 || !strings.Contains(log.String(), "new policies") {
		t.Errorf("%+v, %v: %s", in.Policies, err, log.String())
	}

	err = open("partitions: 3\n").Apply(t.Context(), client, "one")
	if err == nil || !strings.HasPrefix(err.Error(), file+": partitions: ") || !strings.HasSuffix(err.Error(), "it has 4 partitions, not 3: the number is fixed when a queue is used first; want the number that it has, or none") {
		t.Error(err)
	}
}
