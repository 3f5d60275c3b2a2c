package main

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

func (c *console) limitsList() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use: "list", Short: "What is replaced, until when, by whom and why", Args: arguments(0, 0, "none"),
		Long: `list shows the overrides in force. With --all it shows those that have ended, too, as far back as the
history of the policies goes: its last thousand changes. verify reads that as JSON.`,
		Example: "  waterclock limits list\n  waterclock limits list --all --json > overrides.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.inspect(cmd.Context(), func(i *watch.Watcher) error {
				if all {
					versions, err := i.PolicyHistory(cmd.Context(), 2000)
					if err != nil {
						return err
					}
					past := pastOverrides(versions)
					return c.show(past, func(t *table) { pastRows(t, past) })
				}
				found, err := i.Overrides(cmd.Context())
				if err != nil {
					return err
				}
				now := time.Now()
				return c.show(append([]queue.Override{}, found...), func(t *table) {
					t.row("OVERRIDE", "ENDS", "BY", "REASON")
					for _, o := range found {
						t.row(o, human.From(now, o.Until), o.Author, o.Reason)
					}
				})
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "those that have ended, too")
	return cmd
}

func pastRows(t *table, all []pastOverride) {
	t.row("OVERRIDE", "SINCE", "UNTIL", "BY", "REASON")
	for _, o := range all {
		until := o.end().Format(time.RFC3339)
		if !o.Ended.IsZero() {
			until += ", before its time"
		}
		t.row(o.Override, o.Since.Format(time.RFC3339), until, o.Author, o.Reason)
	}
}

// A pastOverride is an override as the history knows it.
type pastOverride struct {
	queue.Override
	Ended time.Time `json:"ended,omitzero"` // when it was ended or replaced before its time
}

// end returns from when on it was not in force any more.
func (o pastOverride) end() time.Time {
	if o.Ended.IsZero() {
		return o.Until
	}
	return o.Ended
}

// pastOverrides returns all overrides that a history knows, newest version first; those that were set first come first.
func pastOverrides(versions []queue.PolicyVersion) []pastOverride {
	type name struct {
		limit, key string
		since      int64
	}
	all, places := []pastOverride{}, make(map[name]int)
	for _, v := range slices.Backward(versions) {
		in := make(map[int]bool)
		for _, o := range v.Overrides {
			of := name{o.Limit, limits.JoinKey(o.Key), o.Since.UnixMicro()}
			if _, known := places[of]; !known {
				places[of] = len(all)
				all = append(all, pastOverride{Override: o})
			}
			in[places[of]] = true
			all[places[of]].Ended = time.Time{}
		}
		for k := range all {
			if o := &all[k]; !in[k] && o.Ended.IsZero() && v.Since.Before(o.Until) {
				o.Ended = v.Since
			}
		}
	}
	return all
}
