package databases

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/outbox"
)

// While relays and Redis are killed at random, programs commit transactions and roll them back. In the end the queue has each
// committed job exactly once, no job of a transaction that was rolled back, and the jobs of a user in the order of the commits.
// With WATERCLOCK_EXHAUSTIVE it is 100,000 committed rows over the three databases.
func TestEachCommittedRowIsAcceptedOnce(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		p := newProof(t, d)
		rows, takes := 1_200, 2*time.Second
		if os.Getenv("WATERCLOCK_EXHAUSTIVE") != "" {
			rows, takes = 33_334, 90*time.Second
		}
		kills := p.play(rows, takes)
		redistest.Eventually(t, time.Minute, "no row waits", func() bool { return len(p.rows(outbox.Waiting)) == 0 })
		for _, r := range p.relays {
			r.kill()
		}
		committed, abandoned := p.written()
		if len(committed) < rows {
			t.Errorf("%d rows were committed, want %d", len(committed), rows)
		}
		for _, complaint := range judge(p.lanes(), committed, abandoned) {
			t.Error(complaint)
		}
		for _, state := range []outbox.State{outbox.Accepted, outbox.Dropped, outbox.Invalid, outbox.Unknown} {
			want(t, "rows that are "+string(state), p.rows(state), nil)
		}
		t.Logf("%d rows committed, %d rolled back; relays were killed %d times, Redis %d times", len(committed), len(abandoned), kills.relays, kills.redis)
		if !kills.enough() || len(abandoned) < 50 {
			t.Error("too little has happened: the test proves nothing")
		}
	})
}

// A proof is a scene with two relays that are processes, and writers.
type proof struct {
	*scene
	dir     string // of Redis
	relays  []*relayProcess
	writers []*writer
}

func newProof(t *testing.T, d database) *proof {
	dir := t.TempDir()
	s := &scene{t: t, db: d.open(t), table: outbox.Table{Dialect: d.dialect}, redis: redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always", "--dir", dir)}
	s.rdb = s.redis.Client(t)
	if err := s.table.Create(t.Context(), s.db); err != nil {
		t.Fatal(err)
	}
	p := &proof{scene: s, dir: dir}
	for range 2 {
		r := &relayProcess{t: t, of: relayOf{d.dialect, d.driver, d.dsn, s.redis.Addr}}
		r.start()
		t.Cleanup(r.kill)
		p.relays = append(p.relays, r)
	}
	for i := range 3 {
		p.writers = append(p.writers, &writer{name: fmt.Sprint("w", i), table: s.table, db: s.db})
	}
	return p
}

// kills is what was killed, and how often.
type kills struct{ relays, redis int }

func (k kills) enough() bool { return k.relays >= 3 && k.redis >= 1 }

// play lets writers commit so many rows in about that time, while others kill.
func (p *proof) play(rows int, takes time.Duration) (k kills) {
	ctx, cancel := context.WithTimeout(p.t.Context(), 5*takes+30*time.Second)
	defer cancel()
	var left atomic.Int64
	left.Store(int64(rows))
	var enough atomic.Bool // was killed
	pace := takes / time.Duration(rows) * time.Duration(len(p.writers)) * meanRows
	var group sync.WaitGroup
	errs := make([]error, len(p.writers))
	for i, w := range p.writers {
		group.Go(func() {
			errs[i] = w.write(ctx, func(n int) bool { return left.Add(-int64(n)) > 0 || !enough.Load() }, pace)
		})
	}
	written := make(chan struct{})
	go func() { group.Wait(); close(written) }()
	for {
		select {
		case <-written:
			for _, err := range errs {
				if err != nil {
					p.t.Error(err)
				}
			}
			return k
		case <-time.After(50*time.Millisecond + rand.N(400*time.Millisecond)):
		}
		enough.Store(k.enough())
		if (k.relays+k.redis)%4 == 1 {
			p.redis.Kill()
			<-time.After(200*time.Millisecond + rand.N(300*time.Millisecond)) // longer than a relay waits for an answer
			p.repairAOF()
			p.redis.Resume()
			k.redis++
			continue
		}
		if rand.IntN(2) == 0 {
			p.awaitAcceptance() // so that a relay dies between an offer and what it notes of the answer
		}
		r := p.relays[rand.IntN(len(p.relays))]
		r.kill()
		r.start()
		k.relays++
	}
}

// repairAOF does what docs/outbox.md asks operators for. A Redis that is killed while it writes a transaction leaves a part of it in the
// append-only file. It cuts off the part of the last command alone, and what is left of the transaction comes back with the start after
// the next: so jobs were doubled once in 800 kills.
func (p *proof) repairAOF() {
	files, err := filepath.Glob(filepath.Join(p.dir, "appendonlydir", "*.manifest"))
	if err != nil || len(files) != 1 {
		p.t.Fatalf("manifests %q, %v", files, err)
	}
	check := exec.Command("redis-check-aof", "--fix", files[0])
	check.Stdin = strings.NewReader("y\n")
	if out, err := check.CombinedOutput(); err != nil {
		p.t.Fatalf("redis-check-aof: %v\n%s", err, out)
	}
}

// awaitAcceptance waits until the queue has more jobs than before, but not for long.
func (p *proof) awaitAcceptance() {
	count := func() string { return p.rdb.HGet(p.t.Context(), "wc:{push}:meta", "in").Val() }
	for before, deadline := count(), time.Now().Add(500*time.Millisecond); count() == before && time.Now().Before(deadline); {
		runtime.Gosched()
	}
}

// A writer commits transactions, one after the other, and rolls others back.
type writer struct {
	name  string
	table outbox.Table
	db    *sql.DB

	n         int
	committed []string // in order
	abandoned []string
}

const meanRows = 8 // of a transaction

// write commits until more, which is told how many rows were committed, says that it is enough.
func (w *writer) write(ctx context.Context, more func(rows int) bool, pace time.Duration) error {
	for {
		ids, err := w.transaction(ctx, 1+rand.IntN(2*meanRows-1))
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		w.committed = append(w.committed, ids...)
		if !more(len(ids)) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s, after %d rows: %w", w.name, len(w.committed), ctx.Err())
		case <-time.After(rand.N(2*pace + 1)):
		}
	}
}

// transaction inserts jobs, waits a while, and commits three times out of four. Otherwise it returns no IDs.
func (w *writer) transaction(ctx context.Context, n int) ([]string, error) {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	jobs := make([]queue.Job, n)
	for i := range jobs {
		jobs[i] = queue.Job{Tenant: "school-" + w.name, User: fmt.Sprint("user-", rand.IntN(5)), Type: "push", Payload: []byte("{}")}
		if w.n++; w.n%2 == 0 {
			jobs[i].ID = fmt.Sprintf("%s-%d", w.name, w.n)
		}
	}
	ids, err := w.table.Insert(ctx, tx, "push", jobs...)
	if err != nil {
		return nil, err
	}
	if w.table.Dialect != outbox.SQLite && rand.IntN(20) == 0 { // others commit meanwhile, with greater numbers
		<-time.After(rand.N(100 * time.Millisecond))
	}
	if rand.IntN(4) == 0 {
		w.abandoned = append(w.abandoned, ids...)
		return nil, tx.Rollback()
	}
	return ids, tx.Commit()
}

func (p *proof) written() (committed, abandoned []string) {
	for _, w := range p.writers {
		committed, abandoned = append(committed, w.committed...), append(abandoned, w.abandoned...)
	}
	return committed, abandoned
}

// judge compares the jobs that are in the lanes with what was committed. No worker has run, so these are the jobs that were accepted.
// It shares nothing with the relay.
func judge(lanes map[string][]string, committed, abandoned []string) (complaints []string) {
	place := make(map[string]int) // of a committed ID
	for i, id := range committed {
		place[id] = i
	}
	complain := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }
	times := make(map[string]int)
	for lane, ids := range lanes {
		last := -1
		for _, id := range ids {
			at, known := place[id]
			switch times[id]++; {
			case slices.Contains(abandoned, id):
				complain("%s was rolled back, and accepted", id)
			case !known:
				complain("%s was accepted, and nobody committed it", id)
			case times[id] > 1:
				complain("%s was accepted %d times", id, times[id])
			case at < last:
				complain("%s: %s comes after %s, which was committed later", lane, id, committed[last])
			}
			last = max(last, at)
		}
	}
	for _, id := range committed {
		if times[id] == 0 {
			complain("%s was committed, and is lost", id)
		}
	}
	return complaints
}

// The judge objects to what is wrong.
func TestJudgeObjects(t *testing.T) {
	committed, abandoned := []string{"a", "b", "c"}, []string{"z"}
	for _, tt := range []struct {
		lanes map[string][]string
		want  []string
	}{
		{map[string][]string{"1": {"a", "c"}, "2": {"b"}}, nil},
		{map[string][]string{"1": {"a"}, "2": {"b"}}, []string{"c was committed, and is lost"}},
		{map[string][]string{"1": {"a", "b", "b", "c"}}, []string{"b was accepted 2 times"}},
		{map[string][]string{"1": {"a", "c", "b"}}, []string{"1: b comes after c, which was committed later"}},
		{map[string][]string{"1": {"a", "b", "c", "z"}}, []string{"z was rolled back, and accepted"}},
		{map[string][]string{"1": {"a", "b", "c", "x"}}, []string{"x was accepted, and nobody committed it"}},
	} {
		if got := judge(tt.lanes, committed, abandoned); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %q, want %q", tt.lanes, got, tt.want)
		}
	}
}

// idOf finds the ID in the bytes of a job: the option with tag 7, its length and its text.
var idOf = regexp.MustCompile(`(?s)\x07(.)((?:w\d-\d+)|[A-Z2-7]{26})`)

// lanes returns the IDs of the jobs in each lane.
func (p *proof) lanes() map[string][]string {
	p.t.Helper()
	ctx := p.t.Context()
	keys, err := p.rdb.Keys(ctx, "wc:{push}:lane:*").Result()
	if err != nil {
		p.t.Fatal(err)
	}
	lanes := make(map[string][]string)
	for _, key := range keys {
		jobs, err := p.rdb.LRange(ctx, key, 0, -1).Result()
		if err != nil {
			p.t.Fatal(err)
		}
		for _, job := range jobs {
			m := idOf.FindStringSubmatch(job)
			if m == nil || int(m[1][0]) != len(m[2]) {
				p.t.Fatalf("%s: no ID in %q", key, job)
			}
			lanes[key] = append(lanes[key], m[2])
		}
	}
	return lanes
}

// relayVariable is the environment variable that makes the test's program a relay.
const relayVariable = "WATERCLOCK_TEST_RELAY"

// relayOf is what a relay that is a process of its own is told.
type relayOf struct {
	Dialect                outbox.Dialect
	Driver, DSN, RedisAddr string
}

// A relayProcess is a relay in a process of its own.
type relayProcess struct {
	t   *testing.T
	of  relayOf
	cmd *exec.Cmd
	out redistest.Buffer
}

func (r *relayProcess) start() {
	of, err := json.Marshal(r.of)
	if err != nil {
		r.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	r.cmd = exec.Command(self)
	r.cmd.Env = append(os.Environ(), relayVariable+"="+string(of))
	r.cmd.Stdout, r.cmd.Stderr = io.Discard, &r.out
	if _, err := r.cmd.StdinPipe(); err != nil { // ends with the test
		r.t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
}

// kill ends the process at once, as kill -9 does.
func (r *relayProcess) kill() {
	if r.cmd.ProcessState == nil {
		r.cmd.Process.Kill()
		r.cmd.Wait()
	}
}

// runRelay is the process. It ends with the test at the latest, when its standard input does.
func runRelay(text string) {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	var of relayOf
	err := json.Unmarshal([]byte(text), &of)
	var db *sql.DB
	if err == nil {
		db, err = sql.Open(of.Driver, of.DSN)
	}
	var relay *outbox.Relay
	if err == nil {
		relay, err = outbox.NewRelay(db, outbox.Table{Dialect: of.Dialect}, redis.NewClient(&redis.Options{Addr: of.RedisAddr}), outbox.RelayConfig{
			Queues: []string{"push"}, Interval: 10 * time.Millisecond, Lease: 250 * time.Millisecond, BatchSize: 150, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		})
	}
	if err == nil {
		err = relay.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
