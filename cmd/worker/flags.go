package main

import (
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/senders"
	"github.com/waterclock/waterclock/internal/tenantlabel"
)

const usage = `worker pulls jobs when their limits allow, and delivers them.

Usage:
  worker --queue NAME [flags]

Flags:
      --redis URL           where Redis is (default redis://127.0.0.1:6379/0); also rediss://,
                            redis-sentinel://HOST,HOST/0?master=NAME, redis-cluster://HOST,HOST,
                            or embedded: a Redis of its own, which ends with the worker and
                            whose address it prints
      --password-file FILE  Redis's password, so that it does not stand among the arguments
      --queue NAME          a queue to pull from; may be repeated (default push)
      --policies FILE       the limits of these queues. They are put into Redis at the start,
                            and again when the file changes or on SIGHUP; a file with a
                            mistake is refused and the limits stay. Without it they stay as
                            they are in Redis
      --sender NAME         log: write each start as a line of JSON; forward: release each
                            job into an asynq queue; fcm, apns, webpush or webhook: send each
                            job's message to the devices of its user. Required, or --config
      --config FILE         several senders at once: see docs/notify.md
      --log-file FILE       where the log sender appends its lines; - is standard output
                            (default -)
      --forward-queue NAME  the asynq queue of --sender forward (default default)
      --secret-file FILE    the secret of the sender: of fcm the JSON of a service account or
                            of workload identity federation, of apns the .p8 file, of webpush
                            the VAPID private key, of webhook ed25519 keys, whsk_…, and the
                            secrets of --webhook-url, whsec_…; or in the environment,
                            WATERCLOCK_SECRET. Without it fcm looks where Google's libraries
                            do: GOOGLE_APPLICATION_CREDENTIALS, gcloud, the metadata server
      --fcm-project ID      the Firebase project, unless a service account's file names it
      --apns-key-id ID, --apns-team-id ID, --apns-topic BUNDLE
                            who sends to which app; the topic may be repeated, the first is
                            that of targets without "app"; --apns-sandbox: to the apps that
                            developers run
      --webpush-subject URL mailto: or https:, where push services reach you;
                            --webpush-private also reaches them at private addresses
      --webhook-url URL     where messages without targets go; --webhook-private also calls
                            private addresses and plain http
      --forgotten-file FILE where tokens of devices that are gone are appended, for the app
      --forgotten-stream    add them to the stream wc:{QUEUE}:notify:forgotten in Redis
      --trust-answers       believe a provider that calls device after device bad
      --connections N       the most connections to a provider's host
      --provider-url URL    another place for the provider: a relay, a stand-in
      --provider-ca FILE    the authorities that verify it, in PEM; by default the system's
      --proxy URL           a proxy for all requests to providers; by default that of HTTPS_PROXY
      --dry-run             deliver nothing: build and check messages, and have FCM validate them
      --concurrency N       how many jobs run at once (default 100)
      --history DURATION    how long waterclock why --job knows what became of a job with an ID of
                            its own (default 24h); 0 notes nothing, and saves 220 bytes a job
      --inbox               also take the tasks of the asynq queues of the same names and
                            file them into the lanes; --inbox=false does not (default true)
      --http ADDR           serve /metrics for Prometheus, /healthz and /readyz, and the dashboard
                            at /dashboard/, at an address such as 127.0.0.1:9090, or :9090 for
                            all interfaces
      --metrics-tenants NAME,NAME
                            tenants, at most 100, of which /metrics says how long their jobs wait
      --token-file FILE     the token with which operators may act at the dashboard, or in the
                            environment, WATERCLOCK_TOKEN; without one it only shows
      --tokens-file FILE    several tokens for the dashboard, each of which may do what the file
                            says; it is read again when it has changed
      --record FILE         append what is offered to the queue, by whomever and as lines of
                            producer without payloads, with "at": for waterclock plan
      --drain               end once nothing waits, runs or is due later
      --log-level LEVEL     debug, info, warn or error (default info)
      --version             print the version
  -h, --help                print this

Every flag is also an environment variable: WATERCLOCK_LOG_FILE for --log-file.

SIGHUP opens --log-file, --record and --forgotten-file again, after they were moved away, and reads
--policies again. The first SIGINT or SIGTERM lets running jobs end, for 20 seconds at most;
a second one kills. What comes within 0.2 s is the same signal.

Exit status: 0 after a clean stop, 1 if something failed, 2 if the flags were wrong.

Example:
  worker --redis embedded --policies policies.yaml --sender log
  worker --queue push --policies policies.yaml --sender log --log-file deliveries.jsonl --drain
`

// options are the flags.
type options struct {
	redis, passwordFile, record, policies, sender, config, logFile, forwardQueue, forgottenFile, http, tokenFile, tokensFile string

	queues, metricsTenants        []string
	concurrency                   int
	inbox, drain                  bool
	history                       time.Duration
	forgottenStream, trustAnswers bool
	senders                       senders.Options
	logLevel                      slog.Level
}

const maxConcurrency = 100_000

func parseFlags(args []string, stdout io.Writer) (o options, helped bool, err error) {
	flags := pflag.NewFlagSet("worker", pflag.ContinueOnError)
	flags.StringVar(&o.redis, "redis", "redis://127.0.0.1:6379/0", "")
	flags.StringVar(&o.passwordFile, "password-file", "", "")
	flags.StringArrayVar(&o.queues, "queue", []string{"push"}, "")
	flags.StringVar(&o.policies, "policies", "", "")
	flags.StringVar(&o.sender, "sender", "", "")
	flags.StringVar(&o.config, "config", "", "")
	flags.BoolVar(&o.forgottenStream, "forgotten-stream", false, "")
	flags.BoolVar(&o.trustAnswers, "trust-answers", false, "")
	flags.StringVar(&o.logFile, "log-file", "-", "")
	flags.StringVar(&o.forwardQueue, "forward-queue", "default", "")
	flags.IntVar(&o.concurrency, "concurrency", 100, "")
	flags.DurationVar(&o.history, "history", 24*time.Hour, "")
	flags.BoolVar(&o.inbox, "inbox", true, "")
	flags.BoolVar(&o.drain, "drain", false, "")
	flags.StringVar(&o.http, "http", "", "")
	flags.StringSliceVar(&o.metricsTenants, "metrics-tenants", nil, "")
	flags.StringVar(&o.record, "record", "", "")
	flags.StringVar(&o.tokenFile, "token-file", "", "")
	flags.StringVar(&o.tokensFile, "tokens-file", "", "")
	flags.StringVar(&o.forgottenFile, "forgotten-file", "", "")
	o.senders.AddFlags(flags)
	level := flags.String("log-level", "info", "")
	if helped, err = config.ParseFlags(flags, args, usage, stdout); helped || err != nil {
		return o, helped, err
	}
	if o.logLevel.UnmarshalText([]byte(*level)) != nil {
		return o, false, config.Usagef("--log-level %q: want debug, info, warn or error", *level)
	}
	if err := o.check(flags.Changed); err != nil {
		return o, false, err
	}
	o.redis, err = config.WithPassword(o.redis, o.passwordFile)
	return o, false, err
}

// check refuses values that are out of range, and flags that have no effect.
func (o options) check(said func(flag string) bool) error {
	for i, q := range o.queues {
		if slices.Contains(o.queues[:i], q) {
			return config.Usagef("--queue %q: named twice", q)
		}
		if err := config.CheckQueue(q); err != nil {
			return err
		}
	}
	if err := tenantlabel.Check(o.metricsTenants, 0); err != nil {
		return config.Usagef("--metrics-tenants: %v", err)
	}
	switch {
	case len(o.metricsTenants) > 0 && o.http == "":
		return config.Usagef("--metrics-tenants: nobody can read them; want --http, too")
	case o.history < 0:
		return config.Usagef("--history %v: want 0 or more", o.history)
	case o.concurrency < 1 || o.concurrency > maxConcurrency:
		return config.Usagef("--concurrency %d: want 1 to %d", o.concurrency, maxConcurrency)
	case o.record != "" && len(o.queues) > 1:
		return config.Usagef("--record: want one --queue; a line does not say which it was offered to")
	case o.config != "":
		return o.checkConfig(said)
	case o.sender == "":
		return config.Usagef("--sender: which one? Want log, forward, fcm, apns, webpush or webhook; or --config")
	case o.sender != "log" && o.sender != "forward" && !slices.Contains(senders.Names(), o.sender):
		return config.Usagef("--sender %q: want log, forward, fcm, apns, webpush or webhook", o.sender)
	case o.sender != "log" && said("log-file"):
		return config.Usagef("--log-file: only --sender log writes it")
	case !slices.Contains(senders.Names(), o.sender) && (said("forgotten-file") || said("forgotten-stream") || said("trust-answers")):
		return config.Usagef("--forgotten-file, --forgotten-stream, --trust-answers: only the senders %s use them", strings.Join(senders.Names(), ", "))
	case o.sender != "forward" && said("forward-queue"):
		return config.Usagef("--forward-queue: only --sender forward uses it")
	case o.logFile == "":
		return config.Usagef(`--log-file "": want a file, or - for standard output`)
	case o.sender == "forward" && o.forwardQueue == "":
		return config.Usagef(`--forward-queue "": want the name of an asynq queue`)
	case o.sender == "forward" && o.inbox && slices.Contains(o.queues, o.forwardQueue):
		return config.Usagef("--forward-queue %q: the inbox would file the released jobs again, for ever; "+
			"want another queue, or --inbox=false", o.forwardQueue)
	}
	return o.senders.Check(o.sender, said)
}

// checkConfig refuses flags that belong into the configuration file.
func (o options) checkConfig(said func(flag string) bool) error {
	for _, flag := range append(senders.Flags(), "sender", "log-file", "forward-queue") {
		if said(flag) {
			return config.Usagef("--%s: with --config, the senders and what they need stand in the file", flag)
		}
	}
	return nil
}
