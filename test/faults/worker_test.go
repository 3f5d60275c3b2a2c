package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/queue"
)

// workerVariable holds the settings of this process if it is to be a worker.
const workerVariable = "WATERCLOCK_FAULT_WORKER"

// readyLine is what a worker's log holds once it runs.
const readyLine = "pulling"

type settings struct {
	Name, Redis, Journal string
	Queue                string
	Beside               []string // other queues
	Lease                time.Duration
	Usual                time.Duration // at most, that a handler takes
	Long                 time.Duration // that one in a hundred takes
	Places               int           // 0 for as many as there are usually
}

// work is the whole life of a worker process. It returns its exit status.
func work(text string) int {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(3) // the test is gone
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := s.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (s settings) run(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	rdb, err := config.OpenRedis(ctx, s.Redis)
	if err != nil {
		return err
	}
	defer rdb.Close()
	file, err := os.OpenFile(s.Journal, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	worker, err := queue.NewWorker(rdb, queue.WorkerConfig{Queues: append([]string{s.Queue}, s.Beside...), Lease: s.Lease, Concurrency: s.Places, Logger: log})
	if err != nil {
		return err
	}
	log.Info(readyLine)
	pulse := newPulse()
	go pulse.run(ctx)
	return worker.Run(ctx, &scribe{settings: s, file: file, pulse: pulse})
}

// A scribe is a handler that writes down when it begins and when it ends.
type scribe struct {
	settings
	file  io.Writer
	pulse *pulse
	runs  atomic.Int64
}

// A line of the journal is the begin or the end of an execution.
type line struct {
	Run    string        // names the execution
	Worker string        // who it is
	At     time.Time     // on this machine's clock
	Late   time.Duration // how late the process ran what was due
	Start  *start        // nil at the end
}

// start is what is known at the begin, on Redis's clock.
type start struct {
	ID, Tenant, User string
	Slot, Started    time.Time
	Attempt          int
	Type             string
	Keys             map[string]string
	Costs            map[string]int
	Digest           []part `json:",omitempty"` // its members
}

// A part is a member of a digest.
type part struct {
	ID      string
	Offered time.Time
}

func (s *scribe) ProcessTask(ctx context.Context, _ *asynq.Task) error {
	info, ok := queue.FromContext(ctx)
	if !ok {
		return fmt.Errorf("no job in the context")
	}
	run := fmt.Sprint(s.Name, "/", s.runs.Add(1))
	var parts []part
	for _, m := range info.Digest {
		parts = append(parts, part{m.ID, m.Offered})
	}
	err := s.write(line{run, s.Name, time.Now(), s.pulse.late(), &start{
		info.ID, info.Tenant, info.User, info.Slot, info.Started, info.Attempt, info.Type, info.Keys, info.Costs, parts,
	}})
	if err != nil {
		return err
	}
	<-time.After(s.duration(info.ID)) // whatever the context says: it is not the subject here
	return s.write(line{run, s.Name, time.Now(), 0, nil})
}

// duration is how long the job's handler takes: always as long.
func (s *scribe) duration(id string) time.Duration {
	h := fnv.New32a()
	io.WriteString(h, id)
	part := h.Sum32() % 1000
	if part < 10 {
		return s.Long
	}
	return time.Duration(part) * s.Usual / 1000
}

func (s *scribe) write(l line) error {
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = s.file.Write(append(b, '\n'))
	return err
}
