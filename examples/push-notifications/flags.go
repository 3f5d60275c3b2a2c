package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/internal/senders"
)

const usage = `Tells the story of three schools that share a queue of push notifications, and
proves that every limit was kept. Exit status 1 if one was not.

With --fcm-targets or another of that kind it talks to the real provider: your own devices
take the place of teacher-42's, and get 50 notifications, 10 in any 3 s at most. A file has
a device in each line: its token, the URL of an endpoint, or a browser's subscription in
JSON. The other flags are the worker's.

Usage: push-notifications [flags]

`

// options are the flags.
type options struct {
	redis   string
	parents int
	cheat   bool

	provider string // of your own devices, "" for none
	targets  string // the file with them
	senders  senders.Options
}

func parseFlags(args []string, stderr io.Writer) (o options, helped bool, err error) {
	flags := pflag.NewFlagSet("push-notifications", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage+flags.FlagUsages()) }
	flags.StringVar(&o.redis, "redis", "embedded", "a Redis to use, as redis://host:port/db")
	flags.IntVar(&o.parents, "parents", 2000, "how many parents the announcement goes to")
	flags.BoolVar(&o.cheat, "cheat", false, "add one false start to the log, to see the verdict find it")
	files := map[string]*string{
		"fcm":     flags.String("fcm-targets", "", "a `file` with devices of yours, behind FCM"),
		"apns":    flags.String("apns-targets", "", "of Apple's, in a `file`"),
		"webpush": flags.String("webpush-targets", "", "subscriptions of browsers, in a `file`"),
		"webhook": flags.String("webhook-targets", "", "URLs of endpoints, in a `file`"),
	}
	o.senders.AddFlags(flags)
	switch err := flags.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return o, true, nil
	case err != nil:
		return o, false, err
	case o.parents < 1:
		return o, false, fmt.Errorf("--parents %d: at least 1", o.parents)
	}
	for _, name := range senders.Names() {
		switch {
		case *files[name] == "":
		case o.provider != "":
			return o, false, fmt.Errorf("--%s-targets, --%s-targets: one provider at a time", o.provider, name)
		default:
			o.provider, o.targets = name, *files[name]
		}
	}
	return o, false, o.senders.Check(o.provider, flags.Changed)
}
