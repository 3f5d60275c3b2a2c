package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/service"
)

func run(ctx context.Context, args []string, _ io.Reader, stdout, stderr io.Writer) error {
	o, helped, err := parseFlags(args, stdout)
	if helped || err != nil {
		return err
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // before any file is opened: one that comes early would kill
	defer signal.Stop(hangups)
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: o.logLevel}))
	limits, err := readPolicies(o, log)
	if err != nil {
		return err
	}
	rdb, err := config.OpenRedis(ctx, o.redis)
	if err != nil {
		return err
	}
	defer rdb.Close()
	for _, warning := range rdb.Warnings {
		log.Warn(warning, "redis", rdb.Address)
	}
	if o.redis == config.Embedded {
		log.Info("an embedded Redis; it ends with this worker", "redis", "redis://"+rdb.Address+"/0")
	}
	var out sink
	registry := newRegistry()
	handler, err := openSender(o, rdb.UniversalClient, stdout, registry, log, &out)
	if err != nil {
		return errors.Join(err, out.close())
	}
	worker, err := queue.NewWorker(rdb, queue.WorkerConfig{
		Registerer: registry, MetricsTenants: o.metricsTenants,
		Queues: o.queues, Concurrency: o.concurrency, Inbox: o.inbox, Logger: log, ShutdownTimeout: shutdownTimeout, History: cmp.Or(o.history, -1),
	})
	if err != nil {
		return errors.Join(err, out.close())
	}
	watched, err := newMonitor(o, registry, rdb, log)
	if err == nil {
		p := parts{worker: worker, handler: handler, policies: limits, rdb: rdb, drain: newDrain(o, rdb), monitor: watched, out: &out, hangups: hangups}
		if p.recorder, err = newRecorder(o, rdb, &out, log); err == nil {
			err = p.serve(ctx, o, log)
		}
	}
	return errors.Join(err, out.close())
}

// parts are the worker and what goes with it; what is not wanted is nil.
type parts struct {
	worker   *queue.Worker
	handler  asynq.Handler
	policies *service.PolicyFile
	rdb      redis.UniversalClient
	drain    *drain
	monitor  *monitored
	recorder *service.Recorder
	out      *sink
	hangups  <-chan os.Signal
}

// serve runs the parts until ctx ends or the queues are empty.
func (p parts) serve(ctx context.Context, o options, log *slog.Logger) error {
	if p.policies != nil {
		if err := p.policies.Apply(ctx, p.rdb, o.queues...); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer stop()
		return p.worker.Run(ctx, p.handler)
	})
	group.Go(func() error { return p.out.watchHangups(ctx, p.hangups, p.reload, log) })
	if p.policies != nil {
		group.Go(func() error { return p.policies.Run(ctx) })
	}
	if p.monitor != nil {
		group.Go(func() error { return p.monitor.Run(ctx, p.monitor.listener) })
		if p.monitor.tokens != nil {
			group.Go(func() error { return p.monitor.tokens.Run(ctx) })
		}
	}
	if p.recorder != nil {
		group.Go(func() error { return p.recorder.Run(ctx) })
	}
	if o.drain {
		group.Go(func() error {
			defer stop()
			return p.drain.wait(ctx, log)
		})
	}
	log.Info("pulling", "queues", o.queues, "sender", o.sender, "concurrency", o.concurrency)
	err := group.Wait()
	log.Info("stopped")
	return err
}

// reload reads the policy file again.
func (p parts) reload() {
	if p.policies != nil {
		p.policies.Reload()
	}
}

// readPolicies reads the policy file; nil if there is none.
func readPolicies(o options, log *slog.Logger) (*service.PolicyFile, error) {
	if o.policies == "" {
		return nil, nil
	}
	file, err := service.ReadPolicyFile(o.policies)
	var unreadable *fs.PathError
	switch {
	case errors.As(err, &unreadable):
		return nil, fmt.Errorf("--policies: %w", err)
	case err != nil:
		return nil, err
	}
	file.Logger = log
	return file, nil
}
