// Package policydiff says for people how policies differ: the lines of their files that go
// and come, each below the lines that lead to it.
//
//	  policies:
//	    standard:
//	-     tenant: {rules: [{leak: 50/s}]}
//	+     tenant: {rules: [{leak: 60/s}]}
package policydiff

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/queue"
)

// Source returns policies as a file.
func Source(p queue.Policies) (string, error) {
	text, err := yaml.Marshal(p)
	return string(text), err
}

// Changes returns how policies differ; nothing if they do not. Those that name no number of partitions leave it as it is.
func Changes(before, after queue.Policies) ([]string, error) {
	after.Partitions = cmp.Or(after.Partitions, before.Partitions)
	was, err := Source(before)
	if err != nil {
		return nil, err
	}
	is, err := Source(after)
	return human.Diff(strings.Split(was, "\n"), strings.Split(is, "\n")), err
}

// A Change is policies that were put in force, and how they differ from those before.
type Change struct {
	Version int64     `json:"version"`
	Since   time.Time `json:"since"`
	queue.Note
	Changes []string `json:"changes"`
}

// History returns the first n of the versions, which are the newest ones, newest first, as
// changes. Another version behind them says what the last of them has changed.
func History(versions []queue.PolicyVersion, n int) (all []Change, err error) {
	for k, v := range versions[:min(len(versions), n)] {
		var before []string
		if k+1 < len(versions) {
			if before, err = lines(versions[k+1]); err != nil {
				return nil, err
			}
		}
		after, err := lines(v)
		if err != nil {
			return nil, err
		}
		all = append(all, Change{v.Version, v.Since, v.Note, human.Diff(before, after)})
	}
	return all, nil
}

// lines are those of a version: its file, and a line for each override.
func lines(v queue.PolicyVersion) ([]string, error) {
	text, err := Source(v.Policies)
	all := strings.Split(text, "\n")
	for k, o := range v.Overrides {
		if k == 0 {
			all = append(all, "overrides:")
		}
		all = append(all, fmt.Sprintf("    %s until %s", o, o.Until.UTC().Format(time.RFC3339)))
	}
	return all, err
}
