// Package policydiff says for people how policies differ: the lines of their files that go
// and come, each below the lines that lead to it.
//
//	  policies:
//	    standard:
//	-     tenant: {rules: [{leak: 50/s}]}
//	+     tenant: {rules: [{leak: 60/s}]}
package policydiff

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waterclock/waterclock/queue"
)

// Source returns policies as a file.
func Source(p queue.Policies) (string, error) {
	text, err := yaml.Marshal(p)
	return string(text), err
}

// Changes returns how policies differ; nothing if they do not.
func Changes(before, after queue.Policies) ([]string, error) {
	was, err := Source(before)
	if err != nil {
		return nil, err
	}
	is, err := Source(after)
	return diff(strings.Split(was, "\n"), strings.Split(is, "\n")), err
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
			text, err := Source(versions[k+1].Policies)
			if err != nil {
				return nil, err
			}
			before = strings.Split(text, "\n")
		}
		text, err := Source(v.Policies)
		if err != nil {
			return nil, err
		}
		all = append(all, Change{v.Version, v.Since, v.Note, diff(before, strings.Split(text, "\n"))})
	}
	return all, nil
}

// diff returns the lines that differ, with + or - before them and those that lead to them.
func diff(before, after []string) (changes []string) {
	common := make([][]int, len(before)+1) // the longest common lines from i and k on
	for i := range common {
		common[i] = make([]int, len(after)+1)
	}
	for i := len(before) - 1; i >= 0; i-- {
		for k := len(after) - 1; k >= 0; k-- {
			if common[i][k] = max(common[i+1][k], common[i][k+1]); before[i] == after[k] {
				common[i][k] = common[i+1][k+1] + 1
			}
		}
	}
	var path []string // the lines that the present one lies under
	shown := 0
	add := func(sign, line string) {
		depth := len(line) - len(strings.TrimLeft(line, " "))
		for n, above := range path {
			if len(above)-len(strings.TrimLeft(above, " ")) >= depth {
				path = path[:n]
				break
			}
		}
		if sign != " " {
			for ; shown < len(path); shown++ {
				changes = append(changes, "  "+path[shown])
			}
			changes = append(changes, sign+" "+line)
		}
		path = append(path, line)
		shown = min(shown, len(path)-1)
		if sign != " " {
			shown = len(path)
		}
	}
	i, k := 0, 0
	for i < len(before) || k < len(after) {
		switch {
		case i < len(before) && k < len(after) && before[i] == after[k]:
			add(" ", before[i])
			i, k = i+1, k+1
		case k == len(after) || i < len(before) && common[i+1][k] >= common[i][k+1]:
			add("-", before[i])
			i++
		default:
			add("+", after[k])
			k++
		}
	}
	return changes
}
