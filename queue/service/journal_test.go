package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

func start() queue.Info {
	slot := time.Date(2026, 11, 21, 9, 0, 0, 250_000_999, time.FixedZone("", 3600))
	return queue.Info{
		ID: "7", Tenant: "school-7", User: "teacher-42", Type: "push", Slot: slot,
		Started: slot.Add(412 * time.Microsecond), Attempt: 1, Waited: 250_999 * time.Microsecond,
	}
}

func TestLine(t *testing.T) {
	const want = `{"id":"7","tenant":"school-7","user":"teacher-42","type":"push",` +
		`"slot":"2026-11-21T08:00:00.250000Z","started_at":"2026-11-21T08:00:00.250412Z",` +
		`"attempt":1,"waited_ms":250}` + "\n"
	if got := string(appendStart(nil, start())); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{
		"", "plain", `quo"te`, `back\slash`, "new\nline", "nul\x00", "школа", "<&>", "\u2028", "e\u0301😀",
	} {
		info := start()
		info.ID, info.Tenant, info.User, info.Type = name, name, name, name
		var got struct{ ID, Tenant, User, Type string }
		line := appendStart(nil, info)
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		want := struct{ ID, Tenant, User, Type string }{name, name, name, name}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
		if strings.Count(string(line), "\n") != 1 {
			t.Errorf("more than a line: %q", line)
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add("school \"7\"\n\xff")
	f.Fuzz(func(t *testing.T, name string) {
		var got string
		if err := json.Unmarshal(appendQuoted(nil, name), &got); err != nil || got != strings.ToValidUTF8(name, "\ufffd") {
			var want string
			text, _ := json.Marshal(name)
			if json.Unmarshal(text, &want); got != want {
				t.Fatalf("%q became %q, %v", name, got, err)
			}
		}
	})
}

// fullDisk takes what it has room for.
type fullDisk struct {
	room  int
	lines strings.Builder
}

var errFull = errors.New("no space left on device")

func (d *fullDisk) Write(p []byte) (int, error) {
	n := min(len(p), d.room)
	d.lines.Write(p[:n])
	if d.room -= n; n < len(p) {
		return n, errFull
	}
	return n, nil
}

// What was cut off on a full disk does not spoil the line that is written when there is
// room again.
func TestAfterFullDisk(t *testing.T) {
	disk := &fullDisk{room: 20}
	log := NewJournal(disk)
	for range 2 {
		if err := log.write(start()); !errors.Is(err, errFull) {
			t.Fatalf("a full disk: %v", err)
		}
	}
	disk.room = 1000
	for range 2 {
		if err := log.write(start()); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(disk.lines.String(), "\n")
	if len(lines) != 4 || json.Valid([]byte(lines[0])) || !json.Valid([]byte(lines[1])) || !json.Valid([]byte(lines[2])) {
		t.Errorf("the log:\n%s", disk.lines.String())
	}
}

func BenchmarkJournal(b *testing.B) {
	disk, info := &fullDisk{}, start()
	log := NewJournal(disk)
	b.ReportAllocs()
	for b.Loop() {
		_ = log.write(info)
		disk.lines.Reset()
	}
}

func TestOutsideOfAWorker(t *testing.T) {
	err := NewJournal(io.Discard).ProcessTask(t.Context(), asynq.NewTask("push", nil))
	if !errors.Is(err, asynq.SkipRetry) {
		t.Errorf("got %v", err)
	}
}

// A journal takes any payload, and its times are those of the job.
func TestInAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		var log bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		producer, err := queue.NewClient(client, "push")
		if err != nil {
			t.Fatal(err)
		}
		_, err = producer.Enqueue(ctx, queue.Job{
			ID: "1", Tenant: "a b", User: "u", Type: "push", Payload: []byte(`{"at":1748607359}`),
			NotBefore: time.Now().Add(10 * time.Second),
		})
		if err != nil {
			t.Fatal(err)
		}
		worker, err := queue.NewWorker(client, queue.WorkerConfig{Queues: []string{"push"}})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := worker.Run(ctx, NewJournal(&log)); err != nil {
			t.Fatal(err)
		}
		var line struct {
			ID, Tenant, User, Type string
			Slot                   time.Time
			Started                time.Time `json:"started_at"`
			Attempt                int
			Waited                 int `json:"waited_ms"`
		}
		if err := json.Unmarshal(log.Bytes(), &line); err != nil {
			t.Fatalf("%v in %s", err, log.Bytes())
		}
		if line.ID != "1" || line.Tenant != "a b" || line.Attempt != 1 || line.Started.Before(line.Slot) ||
			line.Slot.Sub(begin) < 9*time.Second || line.Waited < 9999 {
			t.Errorf("the line is %s", log.Bytes())
		}
	})
}
