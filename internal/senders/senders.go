// Package senders opens the senders that reach a provider, as the flags of a command say.
package senders

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/notify"
)

// SecretVariable is the environment variable with the sender's secret, if that is in no
// file. A flag would show it to everybody who can list processes.
const SecretVariable = "WATERCLOCK_SECRET"

// Options are the flags.
type Options struct {
	secretFile, url, ca string
	connections         int

	apnsKeyID, apnsTeamID, apnsTopic string
	apnsSandbox                      bool
	webpushSubject                   string
	webhookURL                       string
	webhookPrivate                   bool

	// Dial makes the connections, for tests that have no network. It is no flag.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// AddFlags adds the flags to those of a command.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.secretFile, "secret-file", "", "the `file` with the secret of the sender, or in the environment "+SecretVariable)
	flags.StringVar(&o.url, "provider-url", "", "another `URL` of the provider: a relay, a stand-in")
	flags.StringVar(&o.ca, "provider-ca", "", "a `file` with who vouches for it, in PEM")
	flags.IntVar(&o.connections, "connections", 0, "the most connections to a provider's host")
	flags.StringVar(&o.apnsKeyID, "apns-key-id", "", "the `ID` of the key that signs")
	flags.StringVar(&o.apnsTeamID, "apns-team-id", "", "the `ID` of its team")
	flags.StringVar(&o.apnsTopic, "apns-topic", "", "the `bundle` ID of the app")
	flags.BoolVar(&o.apnsSandbox, "apns-sandbox", false, "send to the apps that developers run")
	flags.StringVar(&o.webpushSubject, "webpush-subject", "", "mailto: or https: `URL` where push services reach you")
	flags.StringVar(&o.webhookURL, "webhook-url", "", "the `URL` where messages without targets go")
	flags.BoolVar(&o.webhookPrivate, "webhook-private", false, "also call private addresses and plain http")
}

// Names are the senders that there are.
func Names() []string { return []string{"fcm", "apns", "webpush", "webhook"} }

// Check refuses flags that another sender has, and says which are missing. The sender's
// name may be one that is none of these.
func (o Options) Check(sender string, said func(flag string) bool) error {
	for _, flag := range []string{"secret-file", "provider-url", "provider-ca", "connections"} {
		if said(flag) && !slices.Contains(Names(), sender) {
			return config.Usagef("--%s: only the senders %s use it", flag, strings.Join(Names(), ", "))
		}
	}
	for _, flag := range []string{
		"apns-key-id", "apns-team-id", "apns-topic", "apns-sandbox", "webpush-subject", "webhook-url", "webhook-private",
	} {
		if owner, _, _ := strings.Cut(flag, "-"); said(flag) && owner != sender {
			return config.Usagef("--%s: only the sender %s uses it", flag, owner)
		}
	}
	if o.connections < 0 {
		return config.Usagef("--connections %d: want at least 1, or 0 for the sender's own choice", o.connections)
	}
	required := map[string][]string{"apns": {"apns-key-id", "apns-team-id", "apns-topic"}, "webpush": {"webpush-subject"}}
	for _, flag := range required[sender] {
		if !said(flag) {
			return config.Usagef("--%s: the sender %s needs it", flag, sender)
		}
	}
	return nil
}

// A Sender is closed in the end.
type Sender interface {
	notify.Sender
	io.Closer
}

// Open opens a sender by its name. Tokens are shared through Redis.
func (o Options) Open(name string, rdb redis.UniversalClient) (Sender, error) {
	secret, err := o.secret()
	if err != nil {
		return nil, err
	}
	wire, err := o.wire()
	if err != nil {
		return nil, err
	}
	switch name {
	case "fcm":
		return notify.NewFCM(notify.FCMConfig{ServiceAccount: []byte(secret), Redis: rdb, Wire: wire})
	case "apns":
		return notify.NewAPNs(notify.APNsConfig{
			Key: []byte(secret), KeyID: o.apnsKeyID, TeamID: o.apnsTeamID, Topic: o.apnsTopic,
			Sandbox: o.apnsSandbox, Redis: rdb, Wire: wire,
		})
	case "webpush":
		return notify.NewWebPush(notify.WebPushConfig{Key: strings.TrimSpace(secret), Subject: o.webpushSubject, Wire: wire})
	}
	return notify.NewWebhook(notify.WebhookConfig{
		Secrets: strings.Fields(secret), Endpoint: o.webhookURL, AllowPrivate: o.webhookPrivate, Wire: wire,
	})
}

// secret reads the sender's secret. Errors name the place, not what is there.
func (o Options) secret() (string, error) {
	if o.secretFile == "" {
		text := os.Getenv(SecretVariable)
		if text == "" {
			return "", config.Usagef("no secret: want --secret-file, or the environment variable %s", SecretVariable)
		}
		return text, nil
	}
	text, err := os.ReadFile(o.secretFile)
	if err != nil {
		return "", fmt.Errorf("--secret-file: %w", err)
	}
	return string(text), nil
}

func (o Options) wire() (notify.Wire, error) {
	wire := notify.Wire{URL: o.url, Connections: o.connections, Dial: o.Dial}
	if o.ca == "" {
		return wire, nil
	}
	text, err := os.ReadFile(o.ca)
	if err != nil {
		return wire, fmt.Errorf("--provider-ca: %w", err)
	}
	wire.RootCAs = x509.NewCertPool()
	if !wire.RootCAs.AppendCertsFromPEM(text) {
		return wire, fmt.Errorf("--provider-ca: %s: no certificate in PEM", o.ca)
	}
	return wire, nil
}
