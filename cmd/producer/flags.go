package main

import (
	"io"

	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/queue"
)

const usage = `producer reads jobs, one JSON object a line, and offers them to a queue.

Usage:
  producer [--input FILE] [flags]

Flags:
      --redis URL    where Redis is (default redis://127.0.0.1:6379/0); also rediss://,
                     redis-sentinel://HOST,HOST/0?master=NAME, redis-cluster://HOST,HOST
      --password-file FILE
                     Redis's password, so that it does not stand among the arguments
      --queue NAME   which queue (default push)
      --input FILE   the jobs; - is standard input (default -)
      --batch N      how many jobs to offer at once (default 100)
      --rate N       how many jobs to offer a second, at most; 0 is no limit (default 0)
      --via DOOR     lanes: straight into the lanes; asynq: as tasks of the asynq queue
                     of that name, which a worker files into the lanes (default lanes)
      --durable-replicas N
                     how many replicas of Redis must have a job before it counts as offered
                     (default 0)
      --durable-disk a job counts as offered once it is on Redis's disk; needs Redis 7.2 or
                     Valkey, with appendonly yes
      --json         print the summary as JSON
      --quiet        print no progress and no summary, only what is wrong
      --version      print the version
  -h, --help         print this

A line:
  {"tenant":"school-7","user":"teacher-42","type":"push","payload":{"title":"Hello"}}

  tenant, user, type   required, strings
  payload              any JSON, passed on byte for byte
  id                   a second job with the same ID is a duplicate
  cost                 how much of its limits the job spends (default 1)
  not_before           no start before this time, such as 2026-11-21T08:00:00Z
  deadline             dropped if it cannot start by this time
  finish_by            the handler's context ends at this time
  priority             high, normal or low
  collapse_key         the job takes the place of the user's waiting one with this key
  digest_key           the user's waiting jobs with this key start as one
  max_retry            attempts after the first that failed; 0 is none (default 25)
  timeout              of one attempt, such as 30s
  headers              an object of strings, for the handler
  keys                 an object of strings, for whose values limits by name count
  costs                an object of numbers: what the job costs in units such as tokens

A line that is wrong is reported and does not stop the rest.

Every flag is also an environment variable: WATERCLOCK_REDIS for --redis.

Exit status: 0 if all jobs were offered, 1 if a line was wrong or something failed,
2 if the flags were.

Example:
  producer --queue push --input jobs.jsonl
  zcat jobs.jsonl.gz | producer --queue push --rate 500 --json
`

// options are the flags.
type options struct {
	redis, passwordFile, queue, input, via string

	batch       int
	rate        float64
	json, quiet bool
	durability  queue.Durability
}

const maxBatch = 10_000

func parseFlags(args []string, stdout io.Writer) (o options, helped bool, err error) {
	flags := pflag.NewFlagSet("producer", pflag.ContinueOnError)
	flags.StringVar(&o.redis, "redis", "redis://127.0.0.1:6379/0", "")
	flags.StringVar(&o.passwordFile, "password-file", "", "")
	flags.StringVar(&o.queue, "queue", "push", "")
	flags.StringVar(&o.input, "input", "-", "")
	flags.StringVar(&o.via, "via", "lanes", "")
	flags.IntVar(&o.batch, "batch", 100, "")
	flags.Float64Var(&o.rate, "rate", 0, "")
	flags.BoolVar(&o.json, "json", false, "")
	flags.BoolVar(&o.quiet, "quiet", false, "")
	config.DurabilityFlags(flags, &o.durability)
	if helped, err = config.ParseFlags(flags, args, usage, stdout); helped || err != nil {
		return o, helped, err
	}
	if err := o.check(); err != nil {
		return o, false, err
	}
	o.redis, err = config.WithPassword(o.redis, o.passwordFile)
	return o, false, err
}

func (o options) check() error {
	switch {
	case o.batch < 1 || o.batch > maxBatch:
		return config.Usagef("--batch %d: want 1 to %d", o.batch, maxBatch)
	case !(o.rate >= 0 && o.rate <= 1e9):
		return config.Usagef("--rate %v: want jobs a second, or 0 for no limit", o.rate)
	case o.via != "lanes" && o.via != "asynq":
		return config.Usagef("--via %q: want lanes or asynq", o.via)
	case o.via == "asynq" && o.durability != queue.Durability{}:
		return config.Usagef("--durable-replicas, --durable-disk: tasks of asynq do not wait for replicas or disks; want --via lanes")
	case o.redis == config.Embedded:
		return config.Usagef("--redis embedded: a Redis of its own would end with the producer; want the address that the worker printed")
	case o.input == "":
		return config.Usagef(`--input "": want a file, or - for standard input`)
	}
	if err := config.CheckDurability(o.durability); err != nil {
		return err
	}
	return config.CheckQueue(o.queue)
}
