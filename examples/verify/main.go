// Command verify proves from the logs of workers that the limits were kept: it reads the
// lines that the log sender wrote and the policies that were in force, and checks every
// start with throttle.Verify, which shares no code with the scripts that decide.
//
//	verify --policies policies.yaml deliveries-1.jsonl deliveries-2.jsonl
//
// Windows and spacings are checked on the starts, leaks on the slots.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/queue"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "verify:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := pflag.NewFlagSet("verify", pflag.ContinueOnError)
	file := flags.String("policies", "policies.yaml", "the policies that were in force")
	if err := flags.Parse(args); err != nil {
		return err
	}
	text, err := os.ReadFile(*file)
	if err != nil {
		return fmt.Errorf("reading the policies: %w", err)
	}
	policies, err := queue.ParsePolicies(*file, text)
	if err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return fmt.Errorf("which logs? Name the files that the workers' --log-file wrote")
	}
	starts, err := readLogs(flags.Args())
	if err != nil {
		return err
	}
	broken := check(starts, policies)
	for _, v := range broken {
		fmt.Fprintln(out, v)
	}
	summarize(out, starts)
	if len(broken) > 0 {
		return fmt.Errorf("%d starts broke a limit", len(broken))
	}
	fmt.Fprintln(out, "every limit was kept")
	return nil
}
