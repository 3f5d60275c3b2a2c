package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/senders"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/service"
)

// shutdownTimeout is above the senders' own timeout of 15 s: a send that is cut off may
// have arrived, and would be made again.
const shutdownTimeout = 20 * time.Second

// openSender returns what is done with a job at its slot. What it opens is the sink's.
func openSender(o options, rdb redis.UniversalClient, stdout io.Writer, registry prometheus.Registerer, log *slog.Logger, s *sink) (asynq.Handler, error) {
	switch {
	case o.sender == "forward":
		// The client shares rdb's connections, which are closed with it.
		return queue.Forward(asynq.NewClientFromRedisClient(rdb), o.forwardQueue), nil
	case o.sender != "log":
		return openProvider(o, rdb, registry, log, s)
	case o.logFile == "-":
		return service.NewJournal(stdout), nil
	}
	f, err := s.open(o.logFile, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--log-file: %w", err)
	}
	return service.NewJournal(f), nil
}

// openProvider returns the handler that sends through one provider or several.
func openProvider(o options, rdb redis.UniversalClient, registry prometheus.Registerer, log *slog.Logger, s *sink) (asynq.Handler, error) {
	sender, each, err := openSenders(o, rdb, s)
	if err != nil {
		return nil, err
	}
	for _, one := range each {
		if err := checkCredentials(one, log); err != nil {
			return nil, err
		}
	}
	cfg := notify.HandlerConfig{Shared: true, Concurrency: o.concurrency, TrustAnswers: o.trustAnswers, Redis: rdb, Registerer: registry, Logger: log}
	var gone []forget
	if o.forgottenFile != "" {
		f, err := s.open(o.forgottenFile, 0o600) // it holds tokens
		if err != nil {
			return nil, fmt.Errorf("--forgotten-file: %w", err)
		}
		gone = append(gone, forgotten{f}.forget)
	}
	if o.forgottenStream {
		gone = append(gone, notify.ForgottenStream(rdb))
	}
	if len(gone) > 0 {
		cfg.Forget = forgetAll(gone)
	}
	return notify.NewHandler(sender, cfg)
}

// openSenders opens the sender, or those of the configuration file, which it returns one
// by one too.
func openSenders(o options, rdb redis.UniversalClient, s *sink) (notify.Sender, []senders.Sender, error) {
	if o.config == "" {
		one, err := o.senders.Open(o.sender, rdb)
		if err != nil {
			return nil, nil, err
		}
		s.ends = append(s.ends, one.Close)
		return one, []senders.Sender{one}, nil
	}
	entries, err := senders.ReadFile(o.config)
	if err != nil {
		return nil, nil, err
	}
	all, err := senders.OpenAll(entries, rdb)
	if err != nil {
		return nil, nil, err
	}
	s.ends = append(s.ends, all.Close)
	return all.Providers, all.Each, nil
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

// watchHangups opens the files again on each SIGHUP, and passes it on.
func (s *sink) watchHangups(ctx context.Context, hup <-chan os.Signal, on func(), log *slog.Logger) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hup:
			if err := s.reopen(); err != nil {
				log.Error("opening files again; the old ones stay in use", "err", err)
			}
			on()
		}
	}
}

// A forget tells the app of a target that is gone.
type forget = func(ctx context.Context, job queue.Info, gone notify.Target, why error) error

func forgetAll(all []forget) forget {
	return func(ctx context.Context, job queue.Info, gone notify.Target, why error) (err error) {
		for _, tell := range all {
			err = errors.Join(err, tell(ctx, job, gone, why))
		}
		return err
	}
}
