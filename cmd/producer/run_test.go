package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/jobline"
	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
)

// produce runs the command and returns its exit status and what it wrote.
func produce(t *testing.T, stdin io.Reader, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	err := run(t.Context(), args, stdin, &out, &errs)
	status = config.Report("producer", err, &errs)
	return status, out.String(), errs.String()
}

func TestFlags(t *testing.T) {
	tests := []struct{ args, want string }{
		{"--batch=0", "--batch 0: want 1 to 10000"},
		{"--batch=10001", "--batch 10001: want 1 to 10000"},
		{"--batch=many", `--batch "many": want a whole number`},
		{"--durable-replicas=-1", "--durable-replicas -1: want how many, or 0 to wait for none"},
		{"--durable-replicas=two", "--durable-replicas \"two\": want a whole number"},
		{"--via=asynq --durable-disk", "--durable-replicas, --durable-disk: tasks of asynq do not wait for replicas or disks; want --via lanes"},
		{"--rate=-1", "--rate -1: want jobs a second, or 0 for no limit"},
		{"--rate=NaN", "--rate NaN: want jobs a second, or 0 for no limit"},
		{"--rate=fast", `--rate "fast": want a number`},
		{"--json=perhaps", `--json "perhaps": want true or false`},
		{"--via=post", `--via "post": want lanes or asynq`},
		{"--input=", `--input "": want a file, or - for standard input`},
		{"--queue=a:b", `--queue "a:b": want 1 to 128 bytes without braces, colons or white space`},
		{"--redis=embedded", "--redis embedded: a Redis of its own would end with the producer; want the address that the worker printed"},
		{"--redis=localhost", "--redis: want a URL such as redis://127.0.0.1:6379/0, redis-sentinel://HOST,HOST/0?master=NAME, redis-cluster://HOST,HOST, or embedded"},
		{"--colour", "unknown flag: --colour"},
		{"--batch", "flag needs an argument: --batch"},
		{"jobs.jsonl", `unexpected argument "jobs.jsonl": everything is said with flags`},
	}
	for _, tt := range tests {
		status, stdout, stderr := produce(t, strings.NewReader(""), strings.Fields(tt.args)...)
		want := "producer: " + tt.want + " (producer --help shows how)\n"
		if status != 2 || stdout != "" || stderr != want {
			t.Errorf("%s: status %d\n got %swant %s%s", tt.args, status, stderr, want, stdout)
		}
	}
}

func TestHelp(t *testing.T) {
	status, stdout, stderr := produce(t, nil, "--help")
	if status != 0 || stdout != usage || stderr != "" {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
}

func TestUnreachable(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	status, _, stderr := produce(t, strings.NewReader(""), "--redis=redis://me:hunter2@127.0.0.1:1/0")
	if want := "producer: no Redis at 127.0.0.1:1: connection refused\n"; status != 1 || stderr != want {
		t.Errorf("status %d: %s", status, stderr)
	}
	status, _, stderr = produce(t, nil, "--input=testdata/none.jsonl")
	if want := "producer: --input: open testdata/none.jsonl: no such file or directory\n"; status != 1 || stderr != want {
		t.Errorf("status %d: %s", status, stderr)
	}
}

func jobLine(n int, more string) string {
	return fmt.Sprintf(`{"tenant":"t","user":"u","type":"push","payload":{"n":%d}%s}`, n, more) + "\n"
}

func TestOffer(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	err := newInspector(t, client, "push").SetPolicies(t.Context(), queue.Policies{
		Default: "small", Policies: map[string]queue.Policy{"small": {Capacity: 3}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "jobs.jsonl")
	input := "\ufeff" + jobLine(1, `,"id":"a"`) + "\r\n" + jobLine(2, `,"id":"a"`) + "nonsense\r\n" +
		jobLine(3, `,"collapse_key":"k"`) + jobLine(4, `,"collapse_key":"k"`) + `{"tenant":"t"}` + "\n" +
		strings.Repeat("x", jobline.MaxLine+1) + "\n" + jobLine(5, "") + strings.TrimSpace(jobLine(6, ""))
	if err := os.WriteFile(file, []byte(input), 0o600); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := produce(t, nil, "--redis", server.URL(), "--input", file, "--json", "--batch=4")
	want := file + ":4: not JSON: invalid character 'o' in literal null (expecting 'u') (byte 2)\n" +
		file + ":7: user is missing\n" + file + ":8: the line is longer than 1114112 bytes\n" +
		"producer: 3 of 9 lines were invalid\n"
	if status != 1 || stderr != want {
		t.Errorf("status %d\n got %s\nwant %s", status, stderr, want)
	}
	var got summary
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	if got.Seconds <= 0 || got.PerSecond <= 0 {
		t.Errorf("the time is %v s, %v/s", got.Seconds, got.PerSecond)
	}
	got.Seconds, got.PerSecond = 0, 0
	wantSummary := summary{
		Offered: 6, Accepted: 4, Replaced: 1, Duplicate: 1, Invalid: 3, Dropped: map[queue.Reason]int{queue.ReasonFull: 1},
	}
	if diff := cmp.Diff(wantSummary, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	stats, err := newInspector(t, client, "push").Stats(t.Context())
	if err != nil || stats.Waiting != 3 {
		t.Errorf("%+v, %v", stats, err)
	}
}

func TestSummaryForPeople(t *testing.T) {
	s := summary{
		Offered: 10, Accepted: 6, Replaced: 1, Duplicate: 1, Invalid: 2, Seconds: 0.5, PerSecond: 20,
		Dropped: map[queue.Reason]int{queue.ReasonFull: 2, queue.ReasonExpired: 1},
	}
	const want = "offered 10 jobs in 0.50 s (20/s): 6 accepted (1 took the place of another), 1 duplicate, " +
		"3 dropped (1 expired, 2 full); 2 lines were invalid"
	if got := s.String(); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestViaAsynq(t *testing.T) {
	server := redistest.Start(t)
	input := jobLine(1, `,"id":"a","max_retry":0,"not_before":"2100-01-01T00:00:00Z"`) + jobLine(2, `,"id":"a"`) +
		jobLine(3, `,"id":" "`) + jobLine(4, `,"id":"b"`)
	status, stdout, stderr := produce(t, strings.NewReader(input), "--redis", server.URL(), "--via=asynq")
	want := "stdin:3: id is only white space; an asynq task needs more\nproducer: 1 of 4 lines were invalid\n"
	if status != 1 || stderr != want || !strings.Contains(stdout, ": 2 accepted, 1 duplicate; 1 lines were invalid") {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
	inspector := asynq.NewInspectorFromRedisClient(server.Client(t))
	later, err := inspector.ListScheduledTasks("push")
	if err != nil || len(later) != 1 || later[0].ID != "a" || later[0].MaxRetry != 0 {
		t.Errorf("scheduled: %+v, %v", later, err)
	}
	now, err := inspector.ListPendingTasks("push")
	if err != nil || len(now) != 1 || now[0].ID != "b" || string(now[0].Payload) != `{"n":4}` ||
		cmp.Diff(now[0].Headers, queue.Headers("t", "u")) != "" {
		t.Errorf("pending: %+v, %v", now, err)
	}
}

// A job from a pipe is offered when it comes and does not wait for a full batch; after
// an interruption there is a summary.
func TestPipe(t *testing.T) {
	server := redistest.Start(t)
	inspector := newInspector(t, server.Client(t), "push")
	stdin, feed := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	var stdout bytes.Buffer
	done := make(chan error)
	go func() { done <- run(ctx, []string{"--redis", server.URL()}, stdin, &stdout, io.Discard) }()
	for n := range 3 {
		io.WriteString(feed, jobLine(n, "")+`{"tenant`) // the next line has begun
		redistest.Eventually(t, 10*time.Second, "the job is there", func() bool {
			stats, err := inspector.Stats(t.Context())
			return err == nil && stats.Waiting == int64(n+1)
		})
		io.WriteString(feed, `":"t","user":"v`+fmt.Sprint(n)+`","type":"push","not_before":"2100-01-01T00:00:00Z"}`+"\n")
	}
	redistest.Eventually(t, 10*time.Second, "the last job is there", func() bool {
		stats, err := inspector.Stats(t.Context())
		return err == nil && stats.Later == 3
	})
	cancel()
	err := <-done
	feed.Close()
	if err == nil || err.Error() != "interrupted after line 6: everything up to it was offered, nothing after it" ||
		!strings.HasPrefix(stdout.String(), "offered 6 jobs in ") {
		t.Errorf("%v\n%s", err, stdout.String())
	}
}

// newProducer returns a producer whose door is a function.
func newProducer(o options, d door) *producer {
	return &producer{options: o, door: d, stderr: io.Discard, summary: summary{Dropped: make(map[queue.Reason]int)}}
}

func acceptAll(_ context.Context, jobs []queue.Job) ([]queue.Receipt, error) {
	receipts := make([]queue.Receipt, len(jobs))
	for i := range receipts {
		receipts[i].Status = queue.Accepted
	}
	return receipts, nil
}

// At a rate, jobs are offered evenly: never more than the rate allows by then, plus one
// batch.
func TestRate(t *testing.T) {
	for _, rate := range []float64{3, 1000, 12345} {
		synctest.Test(t, func(t *testing.T) {
			n := int(2 * rate)
			o := options{rate: rate, batch: 100}
			begin, offered, size := time.Now(), 0, o.batchSize()
			p := newProducer(o, func(ctx context.Context, jobs []queue.Job) ([]queue.Receipt, error) {
				if most := time.Since(begin).Seconds()*rate + 0.001; float64(offered) > most {
					t.Fatalf("at %v/s %d jobs after %v", rate, offered, time.Since(begin))
				}
				offered += len(jobs)
				return acceptAll(ctx, jobs)
			})
			r := &reader{lines: newLines(strings.NewReader(strings.Repeat(jobLine(1, ""), n))), size: size}
			if err := p.produce(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			want := time.Duration(float64(n-size) / rate * float64(time.Second))
			if took := time.Since(begin); offered != n || took < want-time.Second/10 || took > want+time.Second/2 {
				t.Errorf("at %v/s %d jobs took %v", rate, offered, took)
			}
		})
	}
}

// What the input held back is not made up for in a burst, but for a second's worth; and
// a door that takes long is talked about.
func TestRateAfterHalt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stderr bytes.Buffer
		begin, batches := time.Now(), 0
		p := newProducer(options{rate: 100, batch: 100}, func(ctx context.Context, jobs []queue.Job) ([]queue.Receipt, error) {
			if batches++; batches == 1 {
				time.Sleep(time.Minute)
			}
			return acceptAll(ctx, jobs)
		})
		p.stderr = &stderr
		r := &reader{lines: newLines(strings.NewReader(strings.Repeat(jobLine(1, ""), 500))), size: 5}
		if err := p.produce(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		// 495 after the halt, 100 of them to make up for it.
		took := time.Since(begin) - time.Minute
		if took < 3800*time.Millisecond || took > 4*time.Second {
			t.Errorf("after the halt it took %v", took)
		}
		if got := stderr.String(); got != "producer: Redis does not answer; still trying\n" {
			t.Errorf("it says %q", got)
		}
	})
}

// When Redis goes away in the middle, the error says what is known.
func TestLostRedis(t *testing.T) {
	lost := errors.New("connection refused")
	p := newProducer(options{batch: 10}, nil)
	p.door = func(ctx context.Context, jobs []queue.Job) ([]queue.Receipt, error) {
		if p.summary.Offered < 20 {
			return acceptAll(ctx, jobs)
		}
		receipts, _ := acceptAll(ctx, jobs[:4])
		return receipts, lost
	}
	r := &reader{lines: newLines(strings.NewReader(strings.Repeat("\n"+jobLine(1, ""), 50))), size: 10}
	err := p.produce(t.Context(), r)
	const want = "connection refused; 24 jobs were offered before; whether those of lines 50 to 60 arrived is unknown, " +
		"and nothing after them was offered (jobs with an id can safely be offered again)"
	if !errors.Is(err, lost) || err.Error() != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
}

// A batch that is on its way when the producer is stopped gets a moment to arrive.
func TestInterruptedOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		p := newProducer(options{batch: 10}, func(offering context.Context, jobs []queue.Job) ([]queue.Receipt, error) {
			cancel()
			<-offering.Done()
			return nil, offering.Err()
		})
		r := &reader{lines: newLines(strings.NewReader(jobLine(1, ""))), size: 10}
		if err := p.produce(ctx, r); !errors.Is(err, context.Canceled) || time.Since(begin) != lastWords {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

func newInspector(t testing.TB, rdb redis.UniversalClient, name string) *queue.Inspector {
	t.Helper()
	inspector, err := queue.NewInspector(rdb, name)
	if err != nil {
		t.Fatal(err)
	}
	return inspector
}
