package queue

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/waterclock/waterclock/internal/ruleyaml"
	"github.com/waterclock/waterclock/throttle"
)

// ParsePolicies reads a policy file. It is strict: whatever it does not know is an
// error. The name is the file's, for errors, which all wrap [ErrInvalidPolicies] and say
// where, what is wrong and what would be right:
//
//	policies.yaml:7: policies.standard.user.rule: unknown key; want rules or concurrency
//
// A file has four parts, each of which may be missing:
//
//	queue:                        # everything together
//	  rules: [{leak: 5000/s}]
//	  concurrency: 2000           # at once
//	default: standard             # the policy of tenants that are not named below
//	policies:
//	  standard:
//	    tenant:
//	      rules: [{leak: 50/s}]
//	      concurrency: 25%        # of the places of all workers
//	      capacity: 100000
//	      overflow: drop_newest
//	    user:
//	      concurrency: 1
//	      rules:
//	        - {window: 10/1m}
//	        - {spacing: 3s}
//	    max_wait: 15m             # the deadline of jobs that have none
//	  premium: {tenant: {rules: [{leak: 500/s}]}, weight: 4} # of its share where places are short
//	tenants: {school-1: premium}
//
// A rule is one kind with its rate, and options:
//
//	{leak: 50/s}
//	{token_bucket: 10/1m, burst: 20}
//	{window: 50/24h, over: drop}
//	{spacing: 3s}
//	{fixed_window: 100/1h, shadow: true}
//	{sliding_counter: 1000/1h, buckets: 2, count_dropped: true}
//
// A tenant whose name is not UTF-8 is written as YAML's !!binary, in base64.
func ParsePolicies(name string, data []byte) (Policies, error) {
	r := &policyReader{file: name}
	var p Policies
	if root, ok := r.document(data); ok {
		p = r.policies(root)
	}
	if r.err != nil {
		return Policies{}, r.err
	}
	return p, nil
}

// policyReader walks the nodes of a policy file and keeps the first error. The walk
// goes on after it: what it returns then is thrown away.
type policyReader struct {
	file string
	err  error
}

// A place is a value in the file, and the way to it from the top.
type place struct {
	path string
	key  int // line of its key
	*yaml.Node
}

// badPolicies is an error that wraps [ErrInvalidPolicies] without repeating it.
type badPolicies string

func (e badPolicies) Error() string { return string(e) }
func (e badPolicies) Unwrap() error { return ErrInvalidPolicies }

// fail notes what is wrong in a line, unless something was before.
func (r *policyReader) fail(line int, path, format string, args ...any) {
	if r.err != nil {
		return
	}
	where := r.file + ":" + strconv.Itoa(line)
	if path != "" {
		where += ": " + path
	}
	r.err = badPolicies(where + ": " + fmt.Sprintf(format, args...))
}

// document returns the top of the only document in the file.
func (r *policyReader) document(data []byte) (place, bool) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	err := decoder.Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && isNull(doc.Content[0]) {
		r.fail(1, "", "the file is empty; want at least one of queue, default, policies, tenants")
		return place{}, false
	}
	if err == nil {
		if err = decoder.Decode(&second); err == nil {
			r.fail(max(1, second.Line), "", "a second document begins; want one")
			return place{}, false
		}
	}
	if !errors.Is(err, io.EOF) {
		line, what := syntaxError(data, err)
		r.fail(line, "", "not YAML: %s", what)
		return place{}, false
	}
	return place{Node: resolve(doc.Content[0])}, true
}

func (r *policyReader) policies(root place) Policies {
	top := r.fields(root, "queue", "default", "policies", "tenants")
	queue := r.fields(top["queue"], "rules", "concurrency")
	p := Policies{
		Queue:       r.rules(queue["rules"]),
		Concurrency: r.concurrency(queue["concurrency"]),
		Policies:    make(map[string]Policy),
		Tenants:     make(map[string]string),
	}
	for _, entry := range r.entries(top["policies"]) {
		name := entry.name
		if !policyName.MatchString(name) {
			r.fail(entry.key, top["policies"].path,
				"name %q; want 1 to 64 letters, digits, dots, dashes or underscores", name)
		}
		p.Policies[name] = r.policy(entry.place)
	}
	names := keysOf(r.entries(top["policies"]))
	if d := top["default"]; d.Node != nil {
		p.Default = r.policyName(d, names)
	}
	for _, entry := range r.entries(top["tenants"]) {
		if entry.name == "" || len(entry.name) > maxName {
			r.fail(entry.key, "tenants", "a tenant's name has 1 to %d bytes, not %d", maxName, len(entry.name))
		}
		p.Tenants[entry.name] = r.policyName(entry.place, names)
	}
	return p
}

func (r *policyReader) policy(at place) (p Policy) {
	fields := r.fields(at, "tenant", "user", "max_wait", "weight")
	tenant := r.fields(fields["tenant"], "rules", "concurrency", "capacity", "overflow")
	user := r.fields(fields["user"], "rules", "concurrency")
	p.Tenant, p.TenantConcurrency = r.rules(tenant["rules"]), r.concurrency(tenant["concurrency"])
	p.User, p.UserConcurrency = r.rules(user["rules"]), r.concurrency(user["concurrency"])
	if c := tenant["capacity"]; c.Node != nil {
		n, err := strconv.Atoi(r.text(c, "a number of jobs such as 100000"))
		if err != nil || n < 0 {
			r.fail(c.Line, c.path, "%q; want a number of jobs such as 100000, or 0 for no bound", c.Value)
		}
		p.Capacity = n
	}
	if o := tenant["overflow"]; o.Node != nil {
		p.Overflow = Overflow(r.text(o, "drop_newest or drop_oldest"))
		if p.Overflow != DropNewest && p.Overflow != DropOldest {
			r.fail(o.Line, o.path, "%q; want drop_newest or drop_oldest", o.Value)
		}
	}
	if w := fields["weight"]; w.Node != nil {
		n, err := strconv.Atoi(r.text(w, "a weight such as 4"))
		if err != nil || n < 1 || n > maxWeight {
			r.fail(w.Line, w.path, "%q; want a weight from 1 to %d", w.Value, maxWeight)
		}
		p.Weight = n
	}
	if w := fields["max_wait"]; w.Node != nil {
		d, err := time.ParseDuration(r.text(w, "a time such as 15m"))
		if err != nil || d < 0 || d > 0 && d < time.Millisecond {
			r.fail(w.Line, w.path, "%q; want a time such as 15m, at least 1ms, or 0 for no bound", w.Value)
		}
		p.MaxWait = d
	}
	return p
}

// concurrency reads how much runs at once.
func (r *policyReader) concurrency(at place) Concurrency {
	if at.Node == nil {
		return Concurrency{}
	}
	const want = "a number of jobs such as 20, or a share of all places such as 25%"
	c, ok := parseConcurrency(r.text(at, want))
	if !ok {
		r.fail(at.Line, at.path, "%q; want %s", at.Value, want)
	}
	return c
}

func (r *policyReader) rules(at place) (rules []throttle.Rule) {
	if at.Node == nil || isNull(at.Node) {
		return nil
	}
	if at.Kind != yaml.SequenceNode {
		r.fail(at.Line, at.path, "%s; want a list of rules such as [{window: 10/1m}, {spacing: 3s}]", kindOf(at.Node))
		return nil
	}
	for i, node := range at.Content {
		rule, err := ruleyaml.Read(node)
		if err != nil {
			line, what := splitLine(err.Error())
			r.fail(line, fmt.Sprintf("%s[%d]", at.path, i), "%s", what)
		}
		rules = append(rules, rule)
	}
	return rules
}

// policyName reads the name of a policy that there must be.
func (r *policyReader) policyName(at place, names []string) string {
	name := r.text(at, "the name of a policy")
	for _, known := range names {
		if name == known {
			return name
		}
	}
	have := "there is none in policies"
	if len(names) > 0 {
		have = "want " + alternatives(names)
	}
	r.fail(at.Line, at.path, "there is no policy %q; %s", name, have)
	return name
}

// text reads a single value.
func (r *policyReader) text(at place, want string) string {
	if at.Kind != yaml.ScalarNode || isNull(at.Node) {
		r.fail(at.Line, at.path, "%s; want %s", kindOf(at.Node), want)
	}
	return at.Value
}

// fields returns the values of a mapping that has no other keys than those known.
func (r *policyReader) fields(at place, known ...string) map[string]place {
	fields := make(map[string]place)
	for _, e := range r.entries(at) {
		fields[e.name] = e.place
		found := false
		for _, k := range known {
			found = found || k == e.name
		}
		if !found {
			r.fail(e.key, e.path, "unknown key; want %s", alternatives(known))
		}
	}
	return fields
}

// An entry is one key of a mapping and its value.
type entry struct {
	name string
	place
}

// entries returns what a mapping holds, in the order of the file. A missing mapping and
// one that was left empty hold nothing.
func (r *policyReader) entries(at place) (entries []entry) {
	if at.Node == nil || isNull(at.Node) {
		return nil
	}
	if at.Kind != yaml.MappingNode {
		r.fail(at.Line, at.path, "%s; want keys and values", kindOf(at.Node))
		return nil
	}
	lines := make(map[string]int)
	for i := 0; i+1 < len(at.Content); i += 2 {
		key, value := resolve(at.Content[i]), resolve(at.Content[i+1])
		name := r.name(key, at.path)
		path := join(at.path, name)
		if key.Kind != yaml.ScalarNode || isNull(key) {
			r.fail(key.Line, at.path, "a key that is %s; want a name", kindOf(key))
		}
		if first, twice := lines[name]; twice {
			r.fail(key.Line, path, "duplicate key, first in line %d", first)
		}
		lines[name] = key.Line
		entries = append(entries, entry{name, place{path, key.Line, value}})
	}
	return entries
}

// name returns what a key says.
func (r *policyReader) name(key *yaml.Node, path string) string {
	if key.ShortTag() != "!!binary" {
		return key.Value
	}
	name, err := base64.StdEncoding.DecodeString(key.Value)
	if err != nil {
		r.fail(key.Line, path, "%q is not base64, which !!binary stands for", key.Value)
	}
	return string(name)
}

func keysOf(entries []entry) (names []string) {
	for _, e := range entries {
		names = append(names, e.name)
	}
	return names
}

// join goes one step further on a path. A key that could be mistaken is quoted.
func join(path, key string) string {
	if !plainKey.MatchString(key) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

var plainKey = regexp.MustCompile(`^[\pL\pN_/@-]+$`)

// alternatives writes a list as people do: "a, b or c".
func alternatives(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// splitLine takes "line N: " off the front of an error.
func splitLine(text string) (line int, what string) {
	number, what, found := strings.Cut(strings.TrimPrefix(text, "line "), ": ")
	line, err := strconv.Atoi(number)
	if !found || err != nil {
		return 0, text
	}
	return line, what
}

// syntaxError tells what the parser of YAML says, and the line: it does not know it for
// some mistakes, counts from 0 for others, and leaves it out if that is 0.
func syntaxError(data []byte, err error) (line int, what string) {
	line, what = splitLine(strings.TrimPrefix(err.Error(), "yaml: "))
	at := -1
	switch alias := unknownAlias.FindStringSubmatch(what); {
	case alias != nil:
		at = bytes.Index(data, []byte("*"+alias[1]))
	case !utf8.Valid(data):
		at = bytes.IndexRune(data, utf8.RuneError)
	case what == "control characters are not allowed":
		at = bytes.IndexFunc(data, func(c rune) bool { return unicode.IsControl(c) && !unicode.IsSpace(c) })
	case strings.HasSuffix(what, "cannot start any token") && bytes.ContainsRune(data, '\t'):
		what += "; want spaces and no tabs in front of keys"
	case parserMistake.MatchString(what):
		line++
	}
	if at >= 0 {
		line = 1 + bytes.Count(data[:at], []byte("\n"))
	}
	return max(1, line), what
}

var (
	unknownAlias  = regexp.MustCompile(`^unknown anchor '(.*)' referenced`)
	parserMistake = regexp.MustCompile(`^did not find expected ('-' indicator|key|',' or|node content|<)`)
)

// resolve follows an alias to what it stands for. Aliases do not chain.
func resolve(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

func isNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null"
}

// kindOf names what a node is, for people.
func kindOf(node *yaml.Node) string {
	switch {
	case isNull(node):
		return "nothing"
	case node.Kind == yaml.MappingNode:
		return "keys and values"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	}
	return strconv.Quote(node.Value)
}
