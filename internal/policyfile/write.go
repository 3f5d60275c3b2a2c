package policyfile

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waterclock/waterclock/internal/ruleyaml"
	"github.com/waterclock/waterclock/throttle"
)

// The form of a policy file, for writing.
type (
	policyFile struct {
		Partitions int                    `yaml:",omitempty"`
		Queue      limitList              `yaml:",omitempty"`
		Default    string                 `yaml:",omitempty"`
		Policies   map[string]policyEntry `yaml:",omitempty"`
		Tenants    map[string]string      `yaml:",omitempty"`
		Limits     map[string]limitEntry  `yaml:",omitempty"`

		Overrides []overrideEntry `yaml:",omitempty"`
	}
	policyEntry struct {
		Tenant  backlog       `yaml:",omitempty"`
		User    backlog       `yaml:",omitempty"`
		MaxWait time.Duration `yaml:"max_wait,omitempty"`
		Closed  bool          `yaml:"closed_counts,omitempty"`
		Weight  int           `yaml:",omitempty"`
		Digest  digestEntry   `yaml:",omitempty,flow"`
	}
	digestEntry struct {
		Max  int           `yaml:",omitempty"`
		Wait time.Duration `yaml:",omitempty"`
		Idle time.Duration `yaml:",omitempty"`
		At   string        `yaml:",omitempty"`
		Days string        `yaml:",omitempty"`
		Zone string        `yaml:",omitempty"`
	}
	backlog struct {
		Rules       []ruleEntry `yaml:",omitempty,flow"`
		Concurrency any         `yaml:",omitempty"`
		Capacity    int         `yaml:",omitempty"`
		Overflow    string      `yaml:",omitempty"`
		Zone        string      `yaml:",omitempty"`
		Quiet       string      `yaml:",omitempty"`
	}
	limitList struct {
		Rules       []ruleEntry `yaml:",omitempty,flow"`
		Concurrency any         `yaml:",omitempty"`
	}
)

// A ruleEntry is a rule that writes itself.
type ruleEntry struct{ rule throttle.Rule }

// MarshalYAML returns the rule as package ruleyaml writes it.
func (r ruleEntry) MarshalYAML() (any, error) { return ruleyaml.Write(r.rule) }

func ruleEntries(rules []throttle.Rule) (entries []ruleEntry) {
	for _, rule := range rules {
		entries = append(entries, ruleEntry{rule})
	}
	return entries
}

// written returns a limit as a file has it: 20, or 25%.
func written(c Concurrency) any {
	switch {
	case c.Jobs != 0:
		return c.Jobs
	case c.Percent != 0:
		return fmt.Sprint(c.Percent, "%")
	}
	return nil
}

func limitsOf(l Limits) limitList {
	return limitList{ruleEntries(l.Rules), written(l.Concurrency)}
}

// MarshalYAML returns the form that [Parse] reads.
func (f File) MarshalYAML() (any, error) {
	file := policyFile{
		Partitions: f.Partitions, Queue: limitsOf(f.Queue), Default: f.Default, Policies: make(map[string]policyEntry), Tenants: f.Tenants, Limits: make(map[string]limitEntry),
	}
	for _, o := range f.Overrides {
		file.Overrides = append(file.Overrides, o.entry())
	}
	for name, limit := range f.Limits {
		file.Limits[name] = limit.entry()
	}
	for name, from := range f.Policies {
		overflow := ""
		if from.DropOldest {
			overflow = "drop_oldest"
		}
		file.Policies[name] = policyEntry{
			backlog{ruleEntries(from.Tenant.Rules), written(from.Tenant.Concurrency), from.Capacity, overflow, "", ""},
			backlog{ruleEntries(from.User.Rules), written(from.User.Concurrency), from.UserCapacity, "", from.Zone, from.Quiet}, from.MaxWait, from.ClosedCounts, from.Weight, digestEntry(from.Digest),
		}
	}
	return file, nil
}

// Source returns the file as Redis keeps it.
func (f File) Source() (string, error) {
	source, err := yaml.Marshal(f)
	if err != nil {
		return "", fmt.Errorf("queue: writing policies: %w", err)
	}
	// Nobody could enqueue under policies that cannot be read.
	if _, err := ParseKept("policies", source); err != nil {
		return "", fmt.Errorf("queue: policies that cannot be read again: %w", err)
	}
	return string(source), nil
}
