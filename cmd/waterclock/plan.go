package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/simulate"
	"github.com/waterclock/waterclock/queue/watch"
)

// A planning is what plan is asked.
type planning struct {
	input, policies, against, at string
	picture                      string
	takes                        time.Duration
	places, rows                 int
	maxWaits                     map[string]string
}

func (c *console) planCommand() *cobra.Command {
	var p planning
	cmd := &cobra.Command{
		Use: "plan --input OFFERS --policies FILE", Short: "What would other policies do? Replays offers in no time",
		Long: `plan replays a log of offers under policies, before and after a change, by the code that queues
decide by, and says for each tenant how long its jobs wait, what is dropped and when all is done.

A line of the log is one that producer reads, with the instant of its offer beside: "at", in
seconds since 1970 or as 2026-11-22T08:00:00Z. --at names another field, such as payload.at. A
line without it was offered together with the one before. Every attempt is taken to succeed.
Without --against the policies in force are what is compared with, and Redis is needed. Overrides and
pauses are not a part of policies, and plan knows none.`,
		Example: "  waterclock plan --input offers.jsonl --against today.yaml --policies tomorrow.yaml --max-wait school-7=5m",
		Args:    arguments(0, 0, "only flags"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if p.input == "" || p.policies == "" {
				return config.Usagef("plan: want --input with offers and --policies with a file")
			}
			return c.plan(cmd.Context(), p)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&p.input, "input", "", "the offers, a line each; - is standard input")
	flags.StringVar(&p.policies, "policies", "", "the policies after")
	flags.StringVar(&p.against, "against", "", "the policies before; those in force if it is not given")
	flags.StringVar(&p.at, "at", "at", "the field that says when a job was offered")
	flags.DurationVar(&p.takes, "takes", 0, "how long a job runs, for concurrency limits")
	flags.IntVar(&p.places, "places", 0, "how many jobs the fleet runs at once; 0 for any number")
	flags.IntVar(&p.rows, "rows", 20, "how many tenants to show, those with most jobs")
	flags.StringVar(&p.picture, "picture", "", "an SVG file to draw into: how many jobs wait, before and after")
	flags.StringToStringVar(&p.maxWaits, "max-wait", nil, "fail if a job of a tenant waits longer: school-7=5m; * is any other tenant")
	return cmd
}

func (c *console) plan(ctx context.Context, p planning) error {
	bounds, err := waitBounds(p.maxWaits)
	if err != nil {
		return err
	}
	after, err := c.readPolicies(p.policies)
	if err != nil {
		return err
	}
	before, err := c.policiesBefore(ctx, p.against)
	if err != nil {
		return err
	}
	offers, err := c.readOffers(p.input, p.at)
	if err != nil {
		return err
	}
	answer, err := simulate.Compare(simulate.Question{Before: before, After: after, Takes: p.takes, Places: p.places}, offers)
	if err != nil {
		return err
	}
	if p.picture != "" {
		if err := os.WriteFile(p.picture, []byte(answer.Picture()), 0o644); err != nil {
			return err
		}
	}
	all := answer.Tenants
	if err := c.show(all, func(t *table) { printPlan(t, all, p.rows) }); err != nil {
		return err
	}
	return tooLong(all, bounds)
}

// policiesBefore are those of a file, or those in force.
func (c *console) policiesBefore(ctx context.Context, file string) (p queue.Policies, err error) {
	if file != "" {
		return c.readPolicies(file)
	}
	err = c.inspect(ctx, func(i *watch.Watcher) error {
		now, err := i.Policies(ctx)
		p = now.Policies
		return err
	})
	return p, err
}

// waitBounds reads --max-wait.
func waitBounds(texts map[string]string) (map[string]time.Duration, error) {
	bounds := make(map[string]time.Duration)
	for tenant, text := range texts {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return nil, config.Usagef("--max-wait %s=%s: want a time such as 5m", tenant, text)
		}
		bounds[tenant] = d
	}
	return bounds, nil
}

// readOffers reads a log of offers.
func (c *console) readOffers(name, at string) (offers []simulate.Offer, err error) {
	from := io.Reader(c.in)
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		from = file
	}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 2<<20)
	last := time.Unix(0, 0).UTC()
	for n := 1; lines.Scan(); n++ {
		if len(strings.TrimSpace(lines.Text())) == 0 {
			continue
		}
		o, err := simulate.ReadOffer(lines.Bytes(), at, last)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		last = o.At
		offers = append(offers, o)
	}
	if len(offers) == 0 && lines.Err() == nil {
		return nil, fmt.Errorf("%s: no offers", name)
	}
	return offers, lines.Err()
}

func printPlan(t *table, all []simulate.Tenant, rows int) {
	t.row("TENANT", "JOBS", "WAIT p50", "p99", "MOST", "DROPPED", "LAST START")
	for _, p := range all[:min(rows, len(all))] {
		t.row(p.Tenant, human.Thousands(p.Before.Jobs), change(p.Before.P50, p.After.P50), change(p.Before.P99, p.After.P99), change(p.Before.Max, p.After.Max),
			drops(p.Before)+" → "+drops(p.After), lastStart(p))
	}
	if len(all) > rows {
		t.row(fmt.Sprintf("and %d tenants more", len(all)-rows))
	}
}

func change(before, after time.Duration) string {
	return human.Span(before) + " → " + human.Span(after)
}

func drops(f simulate.Fate) string {
	if len(f.Dropped) == 0 {
		return "0"
	}
	var texts []string
	for _, reason := range slices.Sorted(maps.Keys(f.Dropped)) {
		texts = append(texts, fmt.Sprintf("%s %s", human.Thousands(f.Dropped[reason]), reason))
	}
	return strings.Join(texts, ", ")
}

// lastStart says when the last job of a tenant starts, and how that changes.
func lastStart(p simulate.Tenant) string {
	switch moved := p.After.Ends.Sub(p.Before.Ends); {
	case p.Before.Ends.IsZero() || p.After.Ends.IsZero():
		return "-"
	case moved == 0:
		return "the same"
	case moved > 0:
		return human.Span(moved) + " later"
	default:
		return human.Span(-moved) + " earlier"
	}
}

// tooLong returns an error for tenants whose jobs would wait longer than they may.
func tooLong(all []simulate.Tenant, bounds map[string]time.Duration) error {
	var errs []error
	for _, p := range all {
		most, bounded := bounds[p.Tenant]
		if !bounded {
			most, bounded = bounds["*"]
		}
		if bounded && p.After.Max > most {
			errs = append(errs, fmt.Errorf("a job of tenant %s would wait for %s; at most %s are allowed", human.Clean(p.Tenant), human.Span(p.After.Max), human.Span(most)))
		}
	}
	return errors.Join(errs...)
}
