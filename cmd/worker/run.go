package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/senders"
	"github.com/waterclock/waterclock/notify"
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
	handler, closeSender, err := openSender(o, rdb, stdout, log)
	if err != nil {
		return err
	}
	worker, err := queue.NewWorker(rdb, queue.WorkerConfig{
		Queues: o.queues, Concurrency: o.concurrency, Inbox: o.inbox, Logger: log,
	})
	if err == nil {
		err = serve(ctx, o, worker, handler, newPolicies(o, rdb, file, log), newDrain(o, rdb), log)
	}
	return errors.Join(err, closeSender())
}

// serve runs the worker and what goes with it until ctx ends or the queues are empty.
func serve(ctx context.Context, o options, w *queue.Worker, h asynq.Handler, p *policies, d *drain, log *slog.Logger) error {
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
	if p != nil {
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
		group.Go(func() error { return p.watch(ctx, hup) })
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

// openSender returns what is done with a job at its slot, and how to end that.
func openSender(o options, rdb *config.Redis, stdout io.Writer, log *slog.Logger) (asynq.Handler, func() error, error) {
	nothing := func() error { return nil }
	switch {
	case o.sender == "forward":
		// The client shares rdb's connections, which are closed with it.
		return queue.Forward(asynq.NewClientFromRedisClient(rdb.UniversalClient), o.forwardQueue), nothing, nil
	case o.sender != "log":
		return openProvider(o, rdb.UniversalClient, log)
	case o.logFile == "-":
		return notify.Handler(notify.NewLog(stdout)), nothing, nil
	}
	// Appended to, so that several workers can share it and a restart loses nothing.
	file, err := os.OpenFile(o.logFile, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, nothing, fmt.Errorf("--log-file: %w", err)
	}
	return notify.Handler(notify.NewLog(file)), file.Close, nil
}

// openProvider returns the handler that sends through a provider, and how to end it.
func openProvider(o options, rdb redis.UniversalClient, log *slog.Logger) (asynq.Handler, func() error, error) {
	nothing := func() error { return nil }
	sender, err := o.senders.Open(o.sender, rdb)
	if err != nil {
		return nil, nothing, err
	}
	if err := checkCredentials(sender, log); err != nil {
		return nil, nothing, errors.Join(err, sender.Close())
	}
	gone, err := openForgotten(o.forgottenFile)
	if err != nil {
		return nil, nothing, errors.Join(err, sender.Close())
	}
	cfg := notify.HandlerConfig{Shared: true, Redis: rdb, Logger: log}
	if gone != nil {
		cfg.Forget = gone.forget
	}
	handler, err := notify.NewHandler(sender, cfg)
	return handler, func() error { return errors.Join(sender.Close(), gone.close()) }, err
}

// checkCredentials asks the provider whether it accepts the sender's credentials. A
// provider that does not answer now is no reason to stay down.
func checkCredentials(s notify.Sender, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	unasked, refused := senders.Check(ctx, s)
	if unasked != nil {
		log.Warn("the credentials could not be checked", "err", unasked)
	}
	return refused
}
