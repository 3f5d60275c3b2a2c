// Package senders opens the senders that reach a provider, as the flags of a command say.
package senders

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
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
	secretFile, url, ca, proxy string
	secretVariable             string // in place of SecretVariable
	connections                int
	dryRun                     bool

	fcmProject            string
	apnsKeyID, apnsTeamID string
	apnsTopics            []string
	apnsSandbox           bool
	webpushSubject        string
	webpushPrivate        bool
	webhookURL            string
	webhookPrivate        bool

	// Dial makes the connections, for tests that have no network. It is no flag.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// AddFlags adds the flags to those of a command.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.secretFile, "secret-file", "", "the `file` with the secret of the sender, or in the environment "+SecretVariable)
	flags.StringVar(&o.url, "provider-url", "", "another `URL` of the provider: a relay, a stand-in")
	flags.StringVar(&o.ca, "provider-ca", "", "a `file` with the certificate authorities that verify it, in PEM")
	flags.StringVar(&o.proxy, "proxy", "", "the `URL` of a proxy for all requests to providers")
	flags.BoolVar(&o.dryRun, "dry-run", false, "deliver nothing: build, check and, with FCM, validate messages")
	flags.IntVar(&o.connections, "connections", 0, "the most connections to a provider's host")
	flags.StringVar(&o.fcmProject, "fcm-project", "", "the `ID` of the Firebase project")
	flags.StringVar(&o.apnsKeyID, "apns-key-id", "", "the `ID` of the key that signs")
	flags.StringVar(&o.apnsTeamID, "apns-team-id", "", "the `ID` of its team")
	flags.StringArrayVar(&o.apnsTopics, "apns-topic", nil, "the `bundle` ID of the app; may be repeated")
	flags.BoolVar(&o.apnsSandbox, "apns-sandbox", false, "send to the apps that developers run")
	flags.StringVar(&o.webpushSubject, "webpush-subject", "", "mailto: or https: `URL` where push services reach you")
	flags.BoolVar(&o.webpushPrivate, "webpush-private", false, "also reach push services at private addresses")
	flags.StringVar(&o.webhookURL, "webhook-url", "", "the `URL` where messages without targets go")
	flags.BoolVar(&o.webhookPrivate, "webhook-private", false, "also call private addresses and plain http")
}

// Flags are the names of the flags.
func Flags() (names []string) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(Options).AddFlags(flags)
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// Names are the senders that there are.
func Names() []string { return []string{"fcm", "apns", "webpush", "webhook"} }

// Check refuses flags of other senders, and says which are missing. The sender may be one that
// has none of these flags.
func (o Options) Check(sender string, said func(flag string) bool) error {
	for _, flag := range []string{"secret-file", "provider-url", "provider-ca", "proxy", "dry-run", "connections"} {
		if said(flag) && !slices.Contains(Names(), sender) {
			return config.Usagef("--%s: only the senders %s use it", flag, strings.Join(Names(), ", "))
		}
	}
	for _, flag := range []string{
		"fcm-project", "apns-key-id", "apns-team-id", "apns-topic", "apns-sandbox", "webpush-subject", "webpush-private",
		"webhook-url", "webhook-private",
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
	secret, err := o.secret(name)
	if err != nil {
		return nil, err
	}
	wire, err := o.wire()
	if err != nil {
		return nil, err
	}
	switch name {
	case "fcm":
		return notify.NewFCM(notify.FCMConfig{Credentials: []byte(secret), Project: o.fcmProject, Redis: rdb, Wire: wire})
	case "apns":
		return notify.NewAPNs(notify.APNsConfig{
			Key: []byte(secret), KeyID: o.apnsKeyID, TeamID: o.apnsTeamID, Topic: o.apnsTopics[0], Topics: o.apnsTopics[1:],
			Sandbox: o.apnsSandbox, Redis: rdb, Wire: wire,
		})
	case "webpush":
		return notify.NewWebPush(notify.WebPushConfig{
			Key: strings.TrimSpace(secret), Subject: o.webpushSubject, AllowPrivate: o.webpushPrivate, Wire: wire,
		})
	}
	return o.openWebhook(strings.Fields(secret), rdb, wire)
}

func (o Options) openWebhook(secrets []string, rdb redis.UniversalClient, wire notify.Wire) (Sender, error) {
	cfg := notify.WebhookConfig{Endpoint: o.webhookURL, AllowPrivate: o.webhookPrivate, Redis: rdb, Wire: wire}
	for _, secret := range secrets {
		if !strings.HasPrefix(secret, "whsec_") {
			cfg.Keys = append(cfg.Keys, secret)
			continue
		}
		if o.webhookURL == "" {
			return nil, config.Usagef("whsec_… in the secret: it belongs to one endpoint; want --webhook-url, a secret in each target, or whsk_…")
		}
		cfg.EndpointSecrets = append(cfg.EndpointSecrets, secret)
	}
	return notify.NewWebhook(cfg)
}

// Check asks the provider whether it accepts a sender's credentials. It returns an error
// only if the provider refuses them: one that cannot be asked now may be there later.
func Check(ctx context.Context, s notify.Sender) (unasked, refused error) {
	checker, ok := s.(interface{ Check(context.Context) error })
	if !ok {
		return nil, nil // nobody to ask
	}
	err := checker.Check(ctx)
	var answer *notify.ProviderError
	if errors.As(err, &answer) && answer.Status < 500 && answer.Status != http.StatusTooManyRequests {
		return nil, err
	}
	return err, nil
}

// secret reads the sender's secret. Errors name the place, not what is there.
func (o Options) secret(sender string) (string, error) {
	text, err := o.given()
	if text != "" || err != nil {
		return text, err
	}
	switch sender {
	case "fcm":
		return googleDefault()
	case "webhook":
		return "", nil // the targets have theirs
	}
	return "", config.Usagef("no secret: want --secret-file, or the environment variable %s", cmp.Or(o.secretVariable, SecretVariable))
}

func (o Options) given() (string, error) {
	if o.secretFile == "" {
		return os.Getenv(cmp.Or(o.secretVariable, SecretVariable)), nil
	}
	text, err := os.ReadFile(o.secretFile)
	if err != nil {
		return "", fmt.Errorf("--secret-file: %w", err)
	}
	if len(text) == 0 {
		return "", fmt.Errorf("--secret-file: %s is empty", o.secretFile)
	}
	return string(text), nil
}

// googleDefault returns the credentials that Google's own libraries would find: the file
// that GOOGLE_APPLICATION_CREDENTIALS names, or gcloud's. "" stands for the metadata server.
func googleDefault() (string, error) {
	if name := os.Getenv("GOOGLE_APPLICATION_CREDENTIALS"); name != "" {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("GOOGLE_APPLICATION_CREDENTIALS: %w", err)
		}
		return string(text), nil
	}
	dir, err := os.UserHomeDir()
	if err != nil {
		return "", nil
	}
	text, err := os.ReadFile(filepath.Join(dir, ".config", "gcloud", "application_default_credentials.json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("gcloud's credentials: %w", err)
	}
	return string(text), nil
}

func (o Options) wire() (notify.Wire, error) {
	wire := notify.Wire{URL: o.url, Connections: o.connections, Dial: o.Dial, Proxy: o.proxy, DryRun: o.dryRun}
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
