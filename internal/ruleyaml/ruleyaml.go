// Package ruleyaml reads and writes rules as policy files have them: a mapping of one kind
// to its rate, and options.
//
//	{leak: 50/s}
//	{leak: 50/s, ramp: 1m}
//	{token_bucket: 10/1m, burst: 20}
//	{window: 50/24h, over: drop}
//	{spacing: 3s}
//	{fixed_window: 100/1h, shadow: true}
//	{sliding_counter: 1000/1h, buckets: 2, count_dropped: true}
//	{window: 3/day, zone: Europe/Paris}
//	{hours: [08:00-12:00, 13:00-18:00], days: mon-fri, zone: Europe/Paris, holidays: [12-25, 2026-04-06]}
//	{warmup: {from: 2026-12-01, days: {1: 50/24h, 2: 100/24h, 7: 1000/24h}}, zone: Europe/Paris}
//
// It stands apart so that package throttle links no YAML.
package ruleyaml

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/throttle"
)

// Read reads a rule. A rate is COUNT/PERIOD, a period is Go's: 50/s is 50/1s. Options are
// over (defer, which is the default, or drop), shadow, count_dropped, ramp (of a leak), burst (of a token
// bucket), buckets (of a sliding counter, 2 by default), zone (of hours, of warm-ups, and of windows by day, week and month), days and
// holidays (of hours). It is strict: an error begins
// with the line and says what would be right.
func Read(node *yaml.Node) (throttle.Rule, error) {
	node = resolve(node)
	if node.Kind != yaml.MappingNode {
		return throttle.Rule{}, wrongAt(node, "want a rule such as {window: 10/1m}")
	}
	var read rules.Rule
	seen := make(map[string]bool)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], resolve(node.Content[i+1])
		if seen[key.Value] {
			return throttle.Rule{}, wrongAt(key, "%s stands twice in one rule", key.Value)
		}
		seen[key.Value] = true
		if rules.Kind(key.Value) == rules.Warmup {
			if err := setWarmup(&read, key, value); err != nil {
				return throttle.Rule{}, err
			}
			continue
		}
		value, err := single(key, value)
		if err != nil {
			return throttle.Rule{}, err
		}
		if err := set(&read, key, value); err != nil {
			return throttle.Rule{}, err
		}
	}
	if err := complete(&read, node, seen); err != nil {
		return throttle.Rule{}, err
	}
	return build(read), nil
}

// lists are the keys whose value may be a list.
var lists = []string{"hours", "days", "holidays", "within"}

// single returns the value of a key as one text: a list as its values between commas.
func single(key, value *yaml.Node) (*yaml.Node, error) {
	if value.Kind == yaml.ScalarNode {
		return value, nil
	}
	if value.Kind != yaml.SequenceNode || !slices.Contains(lists, key.Value) {
		return nil, wrongAt(value, "%s: want a single value", key.Value)
	}
	var texts []string
	for _, node := range value.Content {
		node = resolve(node)
		if node.Kind != yaml.ScalarNode {
			return nil, wrongAt(node, "%s: want a list of single values", key.Value)
		}
		texts = append(texts, node.Value)
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: strings.Join(texts, ","), Line: value.Line}, nil
}

func resolve(node *yaml.Node) *yaml.Node {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	return node
}

// set reads one key of the mapping.
func set(r *rules.Rule, key, value *yaml.Node) (err error) {
	switch k := rules.Kind(key.Value); k {
	case rules.Leak, rules.TokenBucket, rules.Window, rules.Spacing, rules.FixedWindow, rules.SlidingCounter, rules.Hours:
		if err := setKind(r, key); err != nil {
			return err
		}
		if err := r.SetRate(value.Value); err != nil {
			return wrongAt(value, "%w", err)
		}
		return nil
	}
	switch key.Value {
	case "over":
		if r.Drop = value.Value == "drop"; !r.Drop && value.Value != "defer" {
			return wrongAt(value, "over %q: want defer or drop", value.Value)
		}
	case "shadow":
		r.Shadow, err = readBool(key, value)
	case "count_dropped":
		r.Counts, err = readBool(key, value)
	case "burst":
		r.Burst, err = readCount(key, value)
	case "buckets":
		r.Buckets, err = readCount(key, value)
	case "ramp":
		if r.Ramp, err = time.ParseDuration(value.Value); err != nil {
			err = wrongAt(value, "ramp %q: want a time such as 1m", value.Value)
		}
	case "zone":
		r.Zone = value.Value
	case "within":
		r.Within = value.Value
	case "days":
		r.Days = value.Value
	case "holidays":
		r.Holidays = value.Value
	default:
		err = wrongAt(key, "unknown key %q: want a kind (leak, token_bucket, window, spacing, fixed_window, "+
			"sliding_counter, hours, warmup) or an option (over, shadow, count_dropped, burst, buckets, ramp, zone, days, holidays, within)", key.Value)
	}
	return err
}

// setKind notes the kind that a key names.
func setKind(r *rules.Rule, key *yaml.Node) error {
	if r.Kind != "" {
		return wrongAt(key, "%s and %s in one rule: make them two", r.Kind, key.Value)
	}
	r.Kind = rules.Kind(key.Value)
	return nil
}

const wantWarmup = "{from: 2026-12-01, days: {1: 50/24h, 2: 100/24h}}"

// setWarmup reads the date on which a warm-up begins, and its windows by their days. Those by the calendar are checked when the zone is known.
func setWarmup(r *rules.Rule, key, value *yaml.Node) error {
	if err := setKind(r, key); err != nil {
		return err
	}
	if value.Kind != yaml.MappingNode {
		return wrongAt(value, "warmup: want from and days, such as %s", wantWarmup)
	}
	var from, days *yaml.Node
	for i := 0; i+1 < len(value.Content); i += 2 {
		name, of := value.Content[i], resolve(value.Content[i+1])
		field := map[string]**yaml.Node{"from": &from, "days": &days}[name.Value]
		switch {
		case field == nil:
			return wrongAt(name, "warmup: unknown key %q: want from and days; zone, over and others stand beside warmup", name.Value)
		case *field != nil:
			return wrongAt(name, "warmup: %s stands twice", name.Value)
		}
		*field = of
	}
	if from == nil || days == nil {
		return wrongAt(value, "warmup: want from and days, such as %s", wantWarmup)
	}
	if from.Kind != yaml.ScalarNode {
		return wrongAt(from, "warmup: from: want a date such as 2026-12-01")
	}
	if err := rules.CheckDate(from.Value); err != nil {
		return wrongAt(from, "warmup: %w", err)
	}
	r.From = from.Value
	return setWindows(r, days)
}

// setWindows reads the windows of a warm-up.
func setWindows(r *rules.Rule, days *yaml.Node) error {
	if days.Kind != yaml.MappingNode || len(days.Content) == 0 {
		return wrongAt(days, "warmup: days: want windows by the days from which they hold, such as {1: 50/24h, 2: 100/24h}")
	}
	var before *rules.DayWindow
	var texts []string
	for i := 0; i+1 < len(days.Content); i += 2 {
		number, window := resolve(days.Content[i]), resolve(days.Content[i+1])
		if window.Kind != yaml.ScalarNode {
			return wrongAt(window, "warmup: day %s: want a window such as 50/24h", number.Value)
		}
		read, ofDay, err := rules.ParseDayWindow(number.Value, window.Value, "")
		if err == nil {
			ofDay, err = read.Behind(before)
		}
		switch {
		case err != nil && ofDay:
			return wrongAt(number, "warmup: %w", err)
		case err != nil:
			return wrongAt(window, "warmup: %w", err)
		}
		before, texts = &read, append(texts, read.String())
	}
	r.Windows = strings.Join(texts, ",")
	return nil
}

// complete checks the rule as a whole and fills in what may be left out.
func complete(r *rules.Rule, node *yaml.Node, seen map[string]bool) error {
	switch {
	case r.Kind == "":
		return wrongAt(node, "a rule without a kind: want one such as {window: 10/1m}")
	case seen["burst"] && r.Kind != rules.TokenBucket:
		return wrongAt(node, "%s has no burst: only token_bucket has", r.Kind)
	case seen["ramp"] && r.Kind != rules.Leak:
		return wrongAt(node, "%s has no ramp: only leak has", r.Kind)
	case seen["buckets"] && r.Kind != rules.SlidingCounter:
		return wrongAt(node, "%s has no buckets: only sliding_counter has", r.Kind)
	case seen["zone"] && r.Kind != rules.Hours && r.Kind != rules.Calendar && r.Kind != rules.Warmup:
		return wrongAt(node, "%s has no zone: only hours and warmup have, and windows such as {window: 3/day, zone: Europe/Paris}", r.Kind)
	case (seen["days"] || seen["holidays"]) && r.Kind != rules.Hours:
		return wrongAt(node, "%s has no days and no holidays: only hours have", r.Kind)
	case r.Kind == rules.TokenBucket && !seen["burst"]:
		return wrongAt(node, "token_bucket needs burst, the tokens that it holds: {token_bucket: %s, burst: %d}", r.Rate(), r.Limit)
	case r.Kind == rules.SlidingCounter && !seen["buckets"]:
		r.Buckets = 2
	}
	if *r = r.Tidied(); r.Within != "" && r.Kind != rules.Hours {
		return wrongAt(node, "%s has no within: only {hours: user} has", r.Kind)
	}
	if wrong := r.Wrong(); wrong != "" {
		return wrongAt(node, "%s: %s", r, wrong)
	}
	return nil
}

// build makes the rule that was read.
func build(r rules.Rule) (built throttle.Rule) {
	switch r.Kind {
	case rules.Leak:
		built = throttle.Leak(r.Limit, r.Period).Ramping(r.Ramp)
	case rules.TokenBucket:
		built = throttle.TokenBucket(r.Limit, r.Period, r.Burst)
	case rules.Window:
		built = throttle.Window(r.Limit, r.Period)
	case rules.Spacing:
		built = throttle.Spacing(r.Period)
	case rules.FixedWindow:
		built = throttle.FixedWindow(r.Limit, r.Period)
	case rules.SlidingCounter:
		built = throttle.SlidingCounter(r.Limit, r.Period, r.Buckets)
	case rules.Calendar:
		built = throttle.CalendarWindow(r.Limit, string(r.Unit), r.Zone)
	case rules.Warmup:
		built = throttle.Warmup(r.From, r.Windows, r.Zone)
	case rules.Hours:
		if built = throttle.Hours(r.Hours, r.Days, r.Zone, r.Holidays); r.Hours == rules.OfUser {
			built = throttle.UserHours(r.Within, r.Days, r.Holidays)
		}
	}
	if r.Drop {
		built = built.OrDrop()
	}
	if r.Shadow {
		built = built.AsShadow()
	}
	if r.Counts {
		built = built.CountingDropped()
	}
	return built
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

// warmupNode writes a warm-up as setWarmup reads it.
func warmupNode(from, windows string) *yaml.Node {
	scalar := func(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }
	mapping := func(content ...*yaml.Node) *yaml.Node {
		return &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle, Content: content}
	}
	days := mapping()
	for _, d := range (rules.Rule{Kind: rules.Warmup, Windows: windows}).DayWindows() {
		days.Content = append(days.Content, scalar(strconv.Itoa(d.Day)), scalar(d.Window.Rate()))
	}
	return mapping(scalar("from"), scalar(from), scalar("days"), days)
}

// Write writes the rule as [Read] reads it, on one line. It returns an error wrapping
// [throttle.ErrInvalidRule] for a rule that is none.
func Write(r throttle.Rule) (*yaml.Node, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	node := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	add := func(key, value string) {
		node.Content = append(node.Content,
			&yaml.Node{Kind: yaml.ScalarNode, Value: key}, &yaml.Node{Kind: yaml.ScalarNode, Value: value})
	}
	hours, days, holidays := r.Hours()
	switch r.Kind() {
	case throttle.KindWarmup:
		node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: string(throttle.KindWarmup)}, warmupNode(r.Warmup()))
	case throttle.KindCalendar:
		add(string(throttle.KindWindow), fmt.Sprintf("%d/%s", r.Limit(), r.Unit()))
	case throttle.KindHours:
		add(string(throttle.KindHours), hours)
	default:
		add(string(r.Kind()), rules.Rule{Kind: rules.Kind(r.Kind()), Limit: r.Limit(), Period: r.Period()}.Rate())
	}
	for _, local := range [...]struct{ key, value string }{{"within", r.Within()}, {"days", days}, {"zone", r.Zone()}, {"holidays", holidays}} {
		if local.value != "" {
			add(local.key, local.value)
		}
	}
	switch r.Kind() {
	case throttle.KindLeak:
		if r.Ramp() > 0 {
			add("ramp", rules.FormatPeriod(r.Ramp()))
		}
	case throttle.KindTokenBucket:
		add("burst", strconv.Itoa(r.Burst()))
	case throttle.KindSlidingCounter:
		add("buckets", strconv.Itoa(r.Buckets()))
	}
	for _, option := range []struct {
		set        bool
		key, value string
	}{{r.Drops(), "over", "drop"}, {r.Shadows(), "shadow", "true"}, {r.CountsDropped(), "count_dropped", "true"}} {
		if option.set {
			add(option.key, option.value)
		}
	}
	return node, nil
}
