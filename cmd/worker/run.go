package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/queue"
)

func run(ctx context.Context, args []string, _ io.Reader, stdout, stderr io.Writer) error {
	o, helped, err := parseFlags(args, stdout)
	if helped || err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: o.logLevel}))
	file, err := readPolicies(o.policies)
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
		Registerer: registry,
		Queues:     o.queues, Concurrency: o.concurrency, Inbox: o.inbox, Logger: log, ShutdownTimeout: shutdownTimeout,
	})
	if err != nil {
		return errors.Join(err, out.close())
	}
	watched, err := newMonitor(o, registry, rdb, log)
	if err == nil {
		err = serve(ctx, o, worker, handler, newPolicies(o, rdb, file, log), newDrain(o, rdb), watched, &out, log)
	}
	return errors.Join(err, out.close())
}

// serve runs the worker and what goes with it until ctx ends or the queues are empty.
func serve(ctx context.Context, o options, w *queue.Worker, h asynq.Handler, p *policies, d *drain, m *monitored, out *sink, log *slog.Logger) error {
	if p != nil {
		if err := p.apply(ctx); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer stop()
		return w.Run(ctx, h)
	})
	hup, again := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	group.Go(func() error { return out.watchHangups(ctx, hup, again, log) })
	if p != nil {
		group.Go(func() error { return p.watch(ctx, again) })
	}
	if m != nil {
		group.Go(func() error { return m.Run(ctx, m.listener) })
	}
	if o.drain {
		group.Go(func() error {
			defer stop()
			return d.wait(ctx, log)
		})
	}
	log.Info("pulling", "queues", o.queues, "sender", o.sender, "concurrency", o.concurrency)
	err := group.Wait()
	log.Info("stopped")
	return err
}
