package repo

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
)

// The README's first commands do what it says, and the line that it shows has the fields that a
// worker writes.
func TestFirstCommandsRun(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the commands")
	}
	page := read(t, "README.md")
	first, shown := blocks(page, "sh")[0], blocks(page, "json")[0]
	build, run, found := strings.Cut(first, "\n")
	if !found || build != "go build -o bin/ ./cmd/..." {
		t.Fatalf("the first command is %q", build)
	}
	dir := t.TempDir()
	if err := os.Symlink(buildPrograms(t), filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "examples"), os.DirFS("examples")); err != nil {
		t.Fatal(err)
	}
	shell := exec.Command("sh", "-e", "-c", run+"\nwait")
	shell.Dir, shell.Env = dir, append(os.Environ(), "WATERCLOCK_REDIS="+redistest.Start(t).URL())
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that the worker ends with it
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	shell.Stdout, shell.Stderr = out, out
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGTERM)
		_ = shell.Wait() // ended by a signal
	}()
	var line string
	redistest.Eventually(t, 30*time.Second, "a job is delivered", func() bool {
		written, _ := os.ReadFile(filepath.Join(dir, "deliveries.jsonl"))
		line = string(written)
		return strings.HasSuffix(line, "}\n")
	})
	if got, want := fields(t, line), fields(t, shown); !slices.Equal(got, want) {
		t.Errorf("a worker writes %q, and the README shows %q", got, want)
	}
	if !strings.Contains(line, `"tenant":"school-7","user":"teacher-42","type":"push"`) {
		t.Errorf("delivered %s", line)
	}
}

// fields returns the names of a JSON object's fields, in order, and whether a value is a string.
func fields(t *testing.T, line string) (names []string) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(line))
	for n := 0; ; n++ {
		token, err := decoder.Token()
		if err != nil || n > 0 && token == json.Delim('}') {
			return names
		}
		if n%2 == 1 {
			names = append(names, fmt.Sprint(token))
		} else if _, text := token.(string); text {
			names[len(names)-1] += ", a string"
		}
	}
}
