package fleet

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
)

// build builds commands and returns the directory that they are in.
func build(t *testing.T, commands ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	cmd := exec.Command("go", append([]string{"build", "-o", dir + "/"}, commands...)...)
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0") // as they are released
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// A process is one of the commands.
type process struct {
	cmd    *exec.Cmd
	stderr *redistest.Buffer
	stdout *redistest.Buffer
	ended  chan error
}

// start starts a command, which ends with the test at the latest.
func start(t *testing.T, input io.Reader, program string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(program, args...), stderr: new(redistest.Buffer), stdout: new(redistest.Buffer), ended: make(chan error, 1)}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = input, p.stdout, p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

var served = regexp.MustCompile(`(http://127\.0\.0\.1:\d+)`)

// ready waits until /readyz of a process says that it is ready, as Kubernetes does, and returns its address.
func (p *process) ready(t *testing.T) (address string) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, "the process is ready", func() bool {
		select {
		case err := <-p.ended:
			t.Fatalf("it has ended: %v\n%s", err, p.stderr)
		default:
		}
		if address = served.FindString(p.stderr.String() + p.stdout.String()); address == "" {
			return false
		}
		reply, err := http.Get(address + "/readyz")
		if err != nil {
			return false
		}
		defer reply.Body.Close()
		return reply.StatusCode == http.StatusOK
	})
	return address
}

// stop sends SIGTERM, and waits for the end for as long as the manifests let it. It returns how long that took.
func (p *process) stop(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-p.ended:
		if err != nil {
			t.Errorf("a worker that was stopped: %v\n%s", err, p.stderr)
		}
	case <-time.After(grace(t)):
		t.Fatalf("a worker did not end within its grace period\n%s", p.stderr)
	}
	return time.Since(began)
}

// grace is the grace period of workers in the manifests.
func grace(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile("../../deploy/kubernetes/base/worker.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`terminationGracePeriodSeconds: (\d+)`).FindSubmatch(text)
	if m == nil {
		t.Fatal("deploy/kubernetes/base/worker.yaml has no grace period")
	}
	seconds, err := time.ParseDuration(string(m[1]) + "s")
	if err != nil {
		t.Fatal(err)
	}
	return seconds
}

// file writes a file for a test.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// lines makes n lines of jobs.
func lines(n int, line func(i int) string) io.Reader {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintln(&b, line(i))
	}
	return strings.NewReader(b.String())
}
