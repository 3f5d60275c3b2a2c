package queue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/internal/ruleyaml"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/throttle"
)

// The form of a policy file, for writing.
type (
	policyFile struct {
		Queue    limitList              `yaml:",omitempty"`
		Default  string                 `yaml:",omitempty"`
		Policies map[string]policyEntry `yaml:",omitempty"`
		Tenants  map[string]string      `yaml:",omitempty"`
	}
	policyEntry struct {
		Tenant  backlog       `yaml:",omitempty"`
		User    limitList     `yaml:",omitempty"`
		MaxWait time.Duration `yaml:"max_wait,omitempty"`
		Weight  int           `yaml:",omitempty"`
	}
	backlog struct {
		Rules       []ruleEntry `yaml:",omitempty,flow"`
		Concurrency any         `yaml:",omitempty"`
		Capacity    int         `yaml:",omitempty"`
		Overflow    Overflow    `yaml:",omitempty"`
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
		return c.String()
	}
	return nil
}

func limitsOf(rules []throttle.Rule, c Concurrency) limitList {
	return limitList{ruleEntries(rules), written(c)}
}

// MarshalYAML returns the policies in the form that [ParsePolicies] reads.
func (p Policies) MarshalYAML() (any, error) {
	file := policyFile{limitsOf(p.Queue, p.Concurrency), p.Default, make(map[string]policyEntry), p.Tenants}
	for name, from := range p.Policies {
		file.Policies[name] = policyEntry{
			backlog{ruleEntries(from.Tenant), written(from.TenantConcurrency), from.Capacity, from.Overflow},
			limitsOf(from.User, from.UserConcurrency), from.MaxWait, from.Weight,
		}
	}
	return file, nil
}

// source returns the policies as they are kept in Redis.
func (p Policies) source() (string, error) {
	source, err := yaml.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("queue: writing policies: %w", err)
	}
	// Nobody could enqueue under policies that cannot be read.
	if _, err := ParsePolicies("policies", source); err != nil {
		return "", fmt.Errorf("queue: policies that cannot be read again: %w", err)
	}
	return string(source), nil
}

// compile returns the policies as the leader decides by them. Distances are widened by
// the grace, so that the starts, which may come that much after their slots, keep them.
func (p Policies) compile(version int64) *schedule.Policies {
	c := &schedule.Policies{
		Version: version, Queue: compileRules(p.Queue), QueueConcurrency: p.Concurrency.compile(), Default: p.Default, Tenants: p.Tenants,
		Policies: make(map[string]schedule.Policy, len(p.Policies)),
	}
	for name, policy := range p.Policies {
		c.Policies[name] = schedule.Policy{
			Name: name, Tenant: compileRules(policy.Tenant), User: compileRules(policy.User),
			Capacity: policy.Capacity, DropOldest: policy.Overflow == DropOldest, MaxWait: policy.MaxWait.Microseconds(),
			Weight: policy.Weight, TenantConcurrency: policy.TenantConcurrency.compile(), UserConcurrency: policy.UserConcurrency.compile(),
		}
	}
	return c
}

func compileRules(from []throttle.Rule) *rules.Set {
	compiled := make([]rules.Rule, len(from))
	for i, r := range from {
		compiled[i] = rules.Rule{
			Kind: rules.Kind(r.Kind()), Limit: r.Limit(), Period: r.Period(), Burst: r.Burst(), Buckets: r.Buckets(),
			Drop: r.Drops(), Shadow: r.Shadows(), Counts: r.CountsDropped(),
		}
	}
	return rules.Compile(Grace, compiled...)
}

// compilePolicies reads policies as they are kept in Redis. Version 0 means that there
// are none.
func compilePolicies(queue, source string, version int64) (*schedule.Policies, error) {
	if version == 0 {
		return nil, nil
	}
	p, err := ParsePolicies("policies of queue "+queue, []byte(source))
	if err != nil {
		return nil, err
	}
	return p.compile(version), nil
}

// A policyCache keeps the compiled policies of a queue.
type policyCache struct {
	store *store.Store

	mu       sync.Mutex
	policies *schedule.Policies
}

// known returns the policies that were in force last time, nil for none.
func (c *policyCache) known() *schedule.Policies {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.policies
}

// at returns the policies of a version, as long as that is in force.
func (c *policyCache) at(ctx context.Context, want int64) (*schedule.Policies, error) {
	if p := c.known(); version(p) == want {
		return p, nil
	}
	err := c.reload(ctx)
	return c.known(), err
}

// reload reads the policies in force.
func (c *policyCache) reload(ctx context.Context) error {
	source, version, err := c.store.Policies(ctx)
	if err != nil {
		return err
	}
	p, err := compilePolicies(c.store.Queue, source, version)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.policies = p
	return nil
}
