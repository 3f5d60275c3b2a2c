package throttle

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// UnmarshalYAML reads a rule as policies write it: a mapping of one kind to its rate,
// and options.
//
//	{leak: 50/s}
//	{token_bucket: 10/1m, burst: 20}
//	{window: 50/24h, over: drop}
//	{spacing: 3s}
//	{fixed_window: 100/1h, shadow: true}
//	{sliding_counter: 1000/1h, buckets: 2, count_dropped: true}
//
// A rate is COUNT/PERIOD, a period is Go's: 50/s is 50/1s. Options are over (defer,
// which is the default, or drop), shadow, count_dropped, burst (of a token bucket) and
// buckets (of a sliding counter, 2 by default). It is strict: an error begins with the
// line and says what would be right.
func (r *Rule) UnmarshalYAML(node *yaml.Node) error {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind != yaml.MappingNode {
		return wrongAt(node, "want a rule such as {window: 10/1m}")
	}
	var read Rule
	seen := make(map[string]bool)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		for value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if seen[key.Value] {
			return wrongAt(key, "%s stands twice in one rule", key.Value)
		}
		seen[key.Value] = true
		if value.Kind != yaml.ScalarNode {
			return wrongAt(value, "%s: want a single value", key.Value)
		}
		if err := read.set(key, value); err != nil {
			return err
		}
	}
	if err := read.complete(node, seen); err != nil {
		return err
	}
	*r = read
	return nil
}

// set reads one key of the mapping.
func (r *Rule) set(key, value *yaml.Node) (err error) {
	switch k := kind(key.Value); k {
	case kindLeak, kindTokenBucket, kindWindow, kindSpacing, kindFixedWindow, kindSlidingCounter:
		if r.kind != "" {
			return wrongAt(key, "%s and %s in one rule: make them two", r.kind, k)
		}
		r.kind = k
		return r.setRate(value)
	}
	switch key.Value {
	case "over":
		if r.drop = value.Value == "drop"; !r.drop && value.Value != "defer" {
			return wrongAt(value, "over %q: want defer or drop", value.Value)
		}
	case "shadow":
		r.shadow, err = readBool(key, value)
	case "count_dropped":
		r.counts, err = readBool(key, value)
	case "burst":
		r.burst, err = readCount(key, value)
	case "buckets":
		r.buckets, err = readCount(key, value)
	default:
		err = wrongAt(key, "unknown key %q: want a kind (leak, token_bucket, window, spacing, fixed_window, "+
			"sliding_counter) or an option (over, shadow, count_dropped, burst, buckets)", key.Value)
	}
	return err
}

// setRate reads what stands beside the kind.
func (r *Rule) setRate(value *yaml.Node) error {
	if r.kind == kindSpacing {
		period, err := time.ParseDuration(value.Value)
		if err != nil {
			return wrongAt(value, "spacing %q: want a duration such as 3s or 250ms", value.Value)
		}
		r.limit, r.period = 1, period
		return nil
	}
	count, per, found := strings.Cut(value.Value, "/")
	n, err := strconv.Atoi(count)
	if found && err == nil {
		if per != "" && !strings.ContainsRune("0123456789.+-", rune(per[0])) {
			per = "1" + per
		}
		r.limit = n
		r.period, err = time.ParseDuration(per)
	}
	if !found || err != nil {
		return wrongAt(value, "%s %q: want COUNT/PERIOD such as 50/s or 10/1m (a day is 24h)", r.kind, value.Value)
	}
	return nil
}

// complete checks the rule as a whole and fills in what may be left out.
func (r *Rule) complete(node *yaml.Node, seen map[string]bool) error {
	switch {
	case r.kind == "":
		return wrongAt(node, "a rule without a kind: want one such as {window: 10/1m}")
	case seen["burst"] && r.kind != kindTokenBucket:
		return wrongAt(node, "%s has no burst: only token_bucket has", r.kind)
	case seen["buckets"] && r.kind != kindSlidingCounter:
		return wrongAt(node, "%s has no buckets: only sliding_counter has", r.kind)
	case r.kind == kindTokenBucket && !seen["burst"]:
		return wrongAt(node, "token_bucket needs burst, the tokens that it holds: {token_bucket: %s, burst: %d}", r.rate(), r.limit)
	case r.kind == kindSlidingCounter && !seen["buckets"]:
		r.buckets = 2
	}
	if wrong := r.wrong(); wrong != "" {
		return wrongAt(node, "%s: %s", r, wrong)
	}
	return nil
}

func readBool(key, value *yaml.Node) (bool, error) {
	switch value.Value {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, wrongAt(value, "%s %q: want true or false", key.Value, value.Value)
}

func readCount(key, value *yaml.Node) (int, error) {
	n, err := strconv.Atoi(value.Value)
	if err != nil {
		return 0, wrongAt(value, "%s %q: want a whole number", key.Value, value.Value)
	}
	return n, nil
}

// wrongAt returns an error at the line of a node.
func wrongAt(node *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("line %d: "+format, append([]any{node.Line}, args...)...)
}

// MarshalYAML writes the rule as [Rule.UnmarshalYAML] reads it.
func (r Rule) MarshalYAML() (any, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	node := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	add := func(key, value string) {
		node.Content = append(node.Content,
			&yaml.Node{Kind: yaml.ScalarNode, Value: key}, &yaml.Node{Kind: yaml.ScalarNode, Value: value})
	}
	add(string(r.kind), r.rate())
	switch r.kind {
	case kindTokenBucket:
		add("burst", strconv.Itoa(r.burst))
	case kindSlidingCounter:
		add("buckets", strconv.Itoa(r.buckets))
	}
	for _, option := range []struct {
		set        bool
		key, value string
	}{{r.drop, "over", "drop"}, {r.shadow, "shadow", "true"}, {r.counts, "count_dropped", "true"}} {
		if option.set {
			add(option.key, option.value)
		}
	}
	return node, nil
}
