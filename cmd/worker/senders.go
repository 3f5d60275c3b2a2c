package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/queue"
)

// secretVariable is the environment variable with the sender's secret, if that is in no
// file. A flag would show it to everybody who can list processes.
const secretVariable = "WATERCLOCK_SECRET"

// senderOptions are the flags of the senders that reach a provider.
type senderOptions struct {
	secretFile, url, ca, forgotten string
	connections                    int

	apnsKeyID, apnsTeamID, apnsTopic string
	apnsSandbox                      bool
	webpushSubject                   string
	webhookURL                       string
	webhookPrivate                   bool
}

func (s *senderOptions) add(flags *pflag.FlagSet) {
	flags.StringVar(&s.secretFile, "secret-file", "", "")
	flags.StringVar(&s.url, "provider-url", "", "")
	flags.StringVar(&s.ca, "provider-ca", "", "")
	flags.StringVar(&s.forgotten, "forgotten-file", "", "")
	flags.IntVar(&s.connections, "connections", 0, "")
	flags.StringVar(&s.apnsKeyID, "apns-key-id", "", "")
	flags.StringVar(&s.apnsTeamID, "apns-team-id", "", "")
	flags.StringVar(&s.apnsTopic, "apns-topic", "", "")
	flags.BoolVar(&s.apnsSandbox, "apns-sandbox", false, "")
	flags.StringVar(&s.webpushSubject, "webpush-subject", "", "")
	flags.StringVar(&s.webhookURL, "webhook-url", "", "")
	flags.BoolVar(&s.webhookPrivate, "webhook-private", false, "")
}

// providers are the senders that reach one.
func providers() []string { return []string{"fcm", "apns", "webpush", "webhook"} }

// check refuses flags that another sender has, and says which are missing.
func (s senderOptions) check(sender string, said func(string) bool) error {
	for _, flag := range []string{"secret-file", "provider-url", "provider-ca", "forgotten-file", "connections"} {
		if said(flag) && !slices.Contains(providers(), sender) {
			return config.Usagef("--%s: only the senders %s use it", flag, strings.Join(providers(), ", "))
		}
	}
	for _, flag := range []string{
		"apns-key-id", "apns-team-id", "apns-topic", "apns-sandbox", "webpush-subject", "webhook-url", "webhook-private",
	} {
		if owner, _, _ := strings.Cut(flag, "-"); said(flag) && owner != sender {
			return config.Usagef("--%s: only --sender %s uses it", flag, owner)
		}
	}
	if s.connections < 0 {
		return config.Usagef("--connections %d: want at least 1, or 0 for the sender's own choice", s.connections)
	}
	required := map[string][]string{"apns": {"apns-key-id", "apns-team-id", "apns-topic"}, "webpush": {"webpush-subject"}}
	for _, flag := range required[sender] {
		if !said(flag) {
			return config.Usagef("--%s: --sender %s needs it", flag, sender)
		}
	}
	return nil
}

// openProvider returns the handler that sends through a provider, and how to end it.
func openProvider(o options, rdb redis.UniversalClient, log *slog.Logger) (asynq.Handler, func() error, error) {
	nothing := func() error { return nil }
	secret, err := o.senders.secret()
	if err != nil {
		return nil, nothing, err
	}
	wire, err := o.senders.wire()
	if err != nil {
		return nil, nothing, err
	}
	sender, err := o.senders.open(o.sender, secret, rdb, wire)
	if err != nil {
		return nil, nothing, err
	}
	gone, err := openForgotten(o.senders.forgotten)
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

// secret reads the sender's secret. Errors name the place, not what is there.
func (s senderOptions) secret() (string, error) {
	if s.secretFile == "" {
		text := os.Getenv(secretVariable)
		if text == "" {
			return "", config.Usagef("no secret: want --secret-file, or the environment variable %s", secretVariable)
		}
		return text, nil
	}
	text, err := os.ReadFile(s.secretFile)
	if err != nil {
		return "", fmt.Errorf("--secret-file: %w", err)
	}
	return string(text), nil
}

func (s senderOptions) wire() (notify.Wire, error) {
	wire := notify.Wire{URL: s.url, Connections: s.connections}
	if s.ca == "" {
		return wire, nil
	}
	text, err := os.ReadFile(s.ca)
	if err != nil {
		return wire, fmt.Errorf("--provider-ca: %w", err)
	}
	wire.RootCAs = x509.NewCertPool()
	if !wire.RootCAs.AppendCertsFromPEM(text) {
		return wire, fmt.Errorf("--provider-ca: %s: no certificate in PEM", s.ca)
	}
	return wire, nil
}

type closingSender interface {
	notify.Sender
	io.Closer
}

func (s senderOptions) open(name, secret string, rdb redis.UniversalClient, wire notify.Wire) (closingSender, error) {
	switch name {
	case "fcm":
		return notify.NewFCM(notify.FCMConfig{ServiceAccount: []byte(secret), Redis: rdb, Wire: wire})
	case "apns":
		return notify.NewAPNs(notify.APNsConfig{
			Key: []byte(secret), KeyID: s.apnsKeyID, TeamID: s.apnsTeamID, Topic: s.apnsTopic,
			Sandbox: s.apnsSandbox, Redis: rdb, Wire: wire,
		})
	case "webpush":
		return notify.NewWebPush(notify.WebPushConfig{Key: strings.TrimSpace(secret), Subject: s.webpushSubject, Wire: wire})
	}
	return notify.NewWebhook(notify.WebhookConfig{
		Secrets: strings.Fields(secret), Endpoint: s.webhookURL, AllowPrivate: s.webhookPrivate, Wire: wire,
	})
}

// forgotten is the file in which the app finds the targets that are gone. It holds their
// tokens, so nobody else may read it.
type forgotten struct {
	mu   sync.Mutex
	file *os.File
}

func openForgotten(name string) (*forgotten, error) {
	if name == "" {
		return nil, nil
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--forgotten-file: %w", err)
	}
	return &forgotten{file: file}, nil
}

func (f *forgotten) close() error {
	if f == nil {
		return nil
	}
	return f.file.Close()
}

// A goneLine is one line of the file.
type goneLine struct {
	At     time.Time `json:"at"`
	Tenant string    `json:"tenant"`
	User   string    `json:"user"`
	Token  string    `json:"token"`
	Why    string    `json:"why"`
}

func (f *forgotten) forget(_ context.Context, job queue.Info, gone notify.Target, why error) error {
	var code *notify.ProviderError
	text := ""
	if errors.As(why, &code) {
		text = cmp.Or(code.Code, fmt.Sprint(code.Status))
	}
	line, err := json.Marshal(goneLine{job.Started.UTC(), job.Tenant, job.User, gone.Token, text})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err = f.file.Write(append(line, '\n'))
	return err
}
