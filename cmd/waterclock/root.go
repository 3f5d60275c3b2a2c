package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// A console is one call of the command: what its flags say, and where it writes.
type console struct {
	in       *bufio.Reader
	out      io.Writer
	log      *slog.Logger
	redisURL string
	password string // the file that it is in
	queue    string
	json     bool
	yes      bool
	note     queue.Note
}

// run is the whole program.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	c := &console{in: bufio.NewReader(stdin), out: stdout, log: slog.New(slog.NewTextHandler(stderr, nil))}
	root := c.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return root.ExecuteContext(ctx)
}

func (c *console) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "waterclock",
		Short: "Look into a queue, ask why a job waits, and steer it",
		Long: `waterclock shows a queue, says why a job waits and until when, and steers it.

It needs the Redis of the queue and nothing else: no worker, no leader. Names of tenants and
users are printed with whatever could harm a terminal escaped.

Every flag is also an environment variable: WATERCLOCK_REDIS for --redis; REDIS_URL serves
where that is not set. A password belongs there, or into --password-file, and not into the arguments.

Exit status: 0, 1 if something failed or check found something, 2 if it was called the wrong way.`,
		Example: `  waterclock stats
  waterclock why school-7 teacher-42
  waterclock pause school-7 --for 10m --reason "their endpoint is down"
  waterclock policies diff policies.yaml`,
		Version:       config.Version(),
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return c.settle(cmd.Flags()) },
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return config.Usagef("%q: no such command", args[0])
			}
			return cmd.Help()
		},
		Args: cobra.ArbitraryArgs,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&c.redisURL, "redis", "redis://127.0.0.1:6379/0", "where Redis is; see worker --help")
	flags.StringVar(&c.password, "password-file", "", "a file with Redis's password")
	flags.StringVar(&c.queue, "queue", "push", "the queue")
	flags.BoolVar(&c.json, "json", false, "print JSON")
	flags.StringVar(&c.note.Author, "author", "", "who does it, for pauses, policies, and what ends jobs (default: you)")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return config.FlagError(err) })
	root.AddGroup(&cobra.Group{ID: "look", Title: "To look:"}, &cobra.Group{ID: "steer", Title: "To steer:"}, &cobra.Group{ID: "check", Title: "To check:"})
	for id, commands := range map[string][]*cobra.Command{
		"look":  c.looking(),
		"steer": c.steering(),
		"check": c.checking(),
	} {
		for _, cmd := range commands {
			cmd.GroupID = id
			root.AddCommand(cmd)
		}
	}
	return root
}

// settle takes from the environment what was not said with flags.
func (c *console) settle(flags *pflag.FlagSet) error {
	if _, ours := os.LookupEnv("WATERCLOCK_REDIS"); !ours && !flags.Changed("redis") {
		if url := os.Getenv("REDIS_URL"); url != "" {
			c.redisURL = url
		}
	}
	if err := config.FromEnvironment(flags); err != nil {
		return err
	}
	if c.note.Author == "" {
		if u, err := user.Current(); err == nil {
			c.note.Author = u.Username
		}
	}
	return config.CheckQueue(c.queue)
}

// inspect opens Redis and the queue, and lets do look at it.
func (c *console) inspect(ctx context.Context, do func(*watch.Watcher) error) error {
	return c.withRedis(ctx, func(rdb *config.Redis) error {
		inspector, err := watch.New(rdb, c.queue)
		if err != nil {
			return err
		}
		return do(inspector.As(c.note))
	})
}

// steer is inspect for a queue that somebody has used: in another one there is nothing to watch or
// to steer, and its name is probably misspelt.
func (c *console) steer(ctx context.Context, do func(*watch.Watcher) error) error {
	return c.withRedis(ctx, func(rdb *config.Redis) error {
		inspector, err := watch.New(rdb, c.queue)
		if err != nil {
			return err
		}
		known, err := inspector.Known(ctx)
		if err != nil {
			return err
		}
		if known {
			return do(inspector.As(c.note))
		}
		names, err := watch.Queues(ctx, rdb)
		if err != nil {
			return err
		}
		there := "there are no queues in this Redis"
		if len(names) > 0 {
			there = human.Suggest(c.queue, names)
		}
		return fmt.Errorf("queue %s: nobody has ever used it; %s", c.queue, there)
	})
}

func (c *console) withRedis(ctx context.Context, do func(*config.Redis) error) error {
	if c.redisURL == config.Embedded {
		return config.Usagef("--redis %s: an embedded Redis ends with its worker; want the address that the worker prints", c.redisURL)
	}
	url, err := config.WithPassword(c.redisURL, c.password)
	if err != nil {
		return err
	}
	rdb, err := config.OpenRedis(ctx, url)
	if err != nil {
		return err
	}
	defer rdb.Close()
	return do(rdb)
}

// confirm asks before something that cannot be undone.
func (c *console) confirm(format string, args ...any) error {
	if c.yes {
		return nil
	}
	fmt.Fprintf(c.out, format+" [y/N] ", args...)
	answer, _ := c.in.ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return fmt.Errorf("not done: answer y, or say --yes")
}

// asks adds the flag that answers yes.
func (c *console) asks(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask")
	return cmd
}

// arguments returns a check of how many arguments there are, which says what they are. An empty
// one names nothing: it comes from a script that has lost a name.
func arguments(least, most int, want string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			return config.Usagef("%s: %d arguments; want %s", cmd.Name(), len(args), want)
		}
		if empty := slices.Index(args, ""); empty >= 0 {
			return config.Usagef("%s: argument %d is empty; want %s", cmd.Name(), empty+1, want)
		}
		return nil
	}
}
