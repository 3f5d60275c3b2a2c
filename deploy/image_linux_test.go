package deploy

import (
	"bytes"
	"debug/elf"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
)

// An image is a directory with what the last stage of the Dockerfile has.
type image struct {
	root string
	user uint32
}

// buildImage does what the Dockerfile says, for this machine.
func buildImage(t *testing.T) image {
	t.Helper()
	text := read(t, "../Dockerfile")
	root := t.TempDir()
	bin := filepath.Join(root, "usr/local/bin")
	must(t, os.Chmod(root, 0o755))
	must(t, os.MkdirAll(bin, 0o755))
	builds := regexp.MustCompile(`go (build [^\n&\\]+?) -o /out/(\S+) (\S+)`).FindAllStringSubmatch(text, -1)
	if len(builds) != 3 || !strings.Contains(text, "CGO_ENABLED=0") || !strings.Contains(text, "GOWORK=off") {
		t.Fatalf("the Dockerfile builds %q", builds)
	}
	for _, b := range builds {
		// Without -trimpath, which takes paths out of a binary and has everything compiled again.
		flags := strings.Replace(b[1], "-trimpath ", "", 1)
		if flags != `build -ldflags="-s -w"` {
			t.Fatalf("the Dockerfile says go %s, and this test knows something else", b[1])
		}
		args := []string{"build", "-ldflags=-s -w", "-o", filepath.Join(bin, b[2]), b[3]}
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = "..", append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %q: %v\n%s", args, err, out)
		}
	}
	_, last, _ := strings.Cut(text, "\nFROM scratch\n")
	if !strings.Contains(last, "\nUSER 65532:65532\n") || !strings.Contains(last, "\nENV PATH=/usr/local/bin\n") {
		t.Fatalf("the image's last stage is\n%s", last)
	}
	return image{root, 65532}
}

// command returns a call of one of its commands: as root in the image alone and as its user,
// otherwise in an empty directory and with an empty environment.
func (i image) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(i.root, "usr/local/bin", name), args...)
	cmd.Dir, cmd.Env = i.root, []string{"PATH=/usr/local/bin"}
	if os.Getuid() == 0 {
		cmd.Path, cmd.Dir = "/usr/local/bin/"+name, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root, Credential: &syscall.Credential{Uid: i.user, Gid: i.user}}
	}
	return cmd
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The image's commands are static, and work where there is nothing else: a worker runs, is ready,
// delivers a job, and stops in good order.
func TestImage(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the image")
	}
	i := buildImage(t)
	for _, name := range []string{"waterclock", "waterclock-worker", "waterclock-producer"} {
		file, err := elf.Open(filepath.Join(i.root, "usr/local/bin", name))
		must(t, err)
		if libraries, err := file.ImportedLibraries(); err != nil || len(libraries) > 0 {
			t.Errorf("%s needs %q, %v", name, libraries, err)
		}
		file.Close()
		if out, err := i.command(name, "--version").CombinedOutput(); err != nil || !bytes.Contains(out, []byte("go1.")) {
			t.Errorf("%s --version: %v\n%s", name, err, out)
		}
	}
	redis := redistest.Start(t)
	must(t, os.WriteFile(filepath.Join(i.root, "policies.yaml"), []byte(read(t, "../examples/policies.yaml")), 0o644))
	policies := filepath.Join(i.root, "policies.yaml")
	if os.Getuid() == 0 {
		policies = "/policies.yaml"
	}
	worker := i.command("waterclock-worker", "--queue", "push", "--policies", policies, "--sender", "log", "--http", "127.0.0.1:0")
	worker.Env = append(worker.Env, "WATERCLOCK_REDIS="+redis.URL())
	starts, err := worker.StdoutPipe()
	must(t, err)
	var log redistest.Buffer
	worker.Stderr = &log
	must(t, worker.Start())
	defer worker.Process.Kill()
	address := ""
	redistest.Eventually(t, 20*time.Second, "it listens", func() bool {
		if m := regexp.MustCompile(`http=http://(\S+)`).FindStringSubmatch(log.String()); m != nil {
			address = m[1]
		}
		return address != ""
	})
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		response, err := http.Get("http://" + address + path)
		must(t, err)
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
	producer := i.command("waterclock-producer", "--queue", "push", "--quiet")
	producer.Env = append(producer.Env, "WATERCLOCK_REDIS="+redis.URL())
	producer.Stdin = strings.NewReader(`{"tenant":"school-7","user":"teacher-42","type":"push","id":"order-17","payload":{}}` + "\n")
	if out, err := producer.CombinedOutput(); err != nil {
		t.Fatalf("producer: %v\n%s", err, out)
	}
	line := make([]byte, 4096)
	n, err := starts.Read(line)
	if err != nil || !bytes.Contains(line[:n], []byte(`"order-17"`)) {
		t.Errorf("the worker writes %q, %v\n%s", line[:n], err, log.String())
	}
	must(t, worker.Process.Signal(syscall.SIGTERM))
	_, _ = io.Copy(io.Discard, starts)
	if err := worker.Wait(); err != nil {
		t.Errorf("the worker ends with %v\n%s", err, log.String())
	}
}
