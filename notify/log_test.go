package notify

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock/waterclock/queue"
)

func start() queue.Info {
	slot := time.Date(2026, 11, 21, 9, 0, 0, 250_000_999, time.FixedZone("", 3600))
	return queue.Info{
		ID: "7", Tenant: "school-7", User: "teacher-42", Type: "push", Slot: slot,
		Started: slot.Add(412 * time.Microsecond), Attempt: 1, Waited: 250_999 * time.Microsecond,
	}
}

func TestLogLine(t *testing.T) {
	const want = `{"id":"7","tenant":"school-7","user":"teacher-42","type":"push",` +
		`"slot":"2026-11-21T08:00:00.250000Z","started_at":"2026-11-21T08:00:00.250412Z",` +
		`"attempt":1,"waited_ms":250}` + "\n"
	if got := string(appendStart(nil, start())); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

func TestLogNames(t *testing.T) {
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

func FuzzLogNames(f *testing.F) {
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
func TestLogAfterFullDisk(t *testing.T) {
	disk := &fullDisk{room: 20}
	log := NewLog(disk)
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

func BenchmarkLog(b *testing.B) {
	disk, info := &fullDisk{}, start()
	log := NewLog(disk)
	b.ReportAllocs()
	for b.Loop() {
		_ = log.write(info)
		disk.lines.Reset()
	}
}
