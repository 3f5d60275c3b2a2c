package policyfile

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waterclock/waterclock/internal/ruleyaml"
	"github.com/waterclock/waterclock/throttle"
)

// Err is wrapped by the errors of policies that are not allowed.
var Err = errors.New("queue: invalid policies")

// Parse reads a policy file. It is strict: whatever it does not know is an error. The name is the
// file's, for errors, which all wrap [Err] and say where, what is wrong and what would be right:
//
//	policies.yaml:7: policies.standard.user.rule: unknown key; want rules, concurrency or capacity
func Parse(name string, data []byte) (File, error) {
	return parse(&policyReader{file: name, parts: parts, found: make(map[string]place)}, data)
}

// ParseKept reads policies as Redis keeps them ([File.Source]): overrides may be among them.
func ParseKept(name string, data []byte) (File, error) {
	return parse(&policyReader{file: name, parts: append(slices.Clone(parts), "overrides"), found: make(map[string]place)}, data)
}

func parse(r *policyReader, data []byte) (File, error) {
	var f File
	if root, ok := r.document(data); ok {
		f = r.policies(root)
	}
	if wrong := f.Check(); r.err == nil && wrong != nil {
		r.locate(wrong)
	}
	if r.err != nil {
		return File{}, r.err
	}
	return f, nil
}

// parts are what a policy file has at its top.
var parts = []string{"partitions", "queue", "default", "policies", "tenants", "limits"}

// policyReader walks the nodes of a policy file and keeps the first error. The walk
// goes on after it: what it returns then is thrown away. It checks the form of the file, and that
// a value is a number where one is wanted; [File.Check] knows which numbers are.
type policyReader struct {
	file  string
	parts []string // what may stand at the top
	err   error
	found map[string]place // by path
}

// A place is a value in the file, and the way to it from the top.
type place struct {
	path string
	key  int // line of its key
	*yaml.Node
}

// badPolicies is an error that wraps [Err] without repeating it.
type badPolicies string

func (e badPolicies) Error() string { return string(e) }
func (e badPolicies) Unwrap() error { return Err }

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
		r.fail(1, "", "the file is empty; want at least one of %s", strings.Join(parts, ", "))
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

// locate notes a problem of what was read, with its line and the value as it is written there.
func (r *policyReader) locate(p *Problem) {
	if p.name != "" || p.Path == "tenants" {
		r.fail(r.found[join(p.Path, p.name)].key, p.Path, "%s", p.Text)
		return
	}
	at, text := r.found[p.Path], p.Text
	if at.Node == nil { // of an override, which no person has written
		r.fail(1, p.Path, "%s", text)
		return
	}
	if p.Value != "" {
		text = strconv.Quote(at.Value) + "; want " + text
	}
	r.fail(at.Line, p.Path, "%s", text)
}

func (r *policyReader) policies(root place) File {
	top := r.fields(root, r.parts...)
	f := File{Queue: r.limits(r.fields(top["queue"], "rules", "concurrency")), Policies: make(map[string]Policy), Tenants: make(map[string]string)}
	if at := top["partitions"]; at.Node != nil {
		f.Partitions = read(r, at, notZero, wantPartitions)
	}
	for _, entry := range r.entries(top["policies"]) {
		f.Policies[entry.name] = r.policy(entry.place)
	}
	const want = "the name of a policy"
	if d := top["default"]; d.Node != nil {
		if f.Default = r.text(d, want); f.Default == "" {
			r.fail(d.Line, d.path, `""; want %s`, want)
		}
	}
	for _, entry := range r.entries(top["tenants"]) {
		f.Tenants[entry.name] = r.text(entry.place, want)
	}
	for _, entry := range r.entries(top["limits"]) {
		if f.Limits == nil {
			f.Limits = make(map[string]Limit)
		}
		f.Limits[entry.name] = r.named(entry.place)
	}
	f.Overrides = r.overrides(top["overrides"])
	return f
}

func (r *policyReader) policy(at place) (p Policy) {
	fields := r.fields(at, "tenant", "user", "max_wait", "closed_counts", "weight", "digest")
	tenant := r.fields(fields["tenant"], "rules", "concurrency", "capacity", "overflow")
	user := r.fields(fields["user"], "rules", "concurrency", "capacity", "zone", "quiet")
	if z := user["zone"]; z.Node != nil {
		p.Zone = r.text(z, "a zone such as Europe/Paris")
	}
	if q := user["quiet"]; q.Node != nil {
		p.Quiet = r.text(q, "quiet hours such as 21:30-07:00")
	}
	p.Tenant, p.User = r.limits(tenant), r.limits(user)
	p.Capacity, p.UserCapacity = r.capacity(tenant), r.capacity(user)
	if o := tenant["overflow"]; o.Node != nil {
		p.DropOldest = read(r, o, overflow, wantOverflow)
	}
	if w := fields["weight"]; w.Node != nil {
		p.Weight = read(r, w, notZero, wantWeight)
	}
	if w := fields["max_wait"]; w.Node != nil {
		p.MaxWait = read(r, w, time.ParseDuration, wantMaxWait)
	}
	if c := fields["closed_counts"]; c.Node != nil {
		p.ClosedCounts = read(r, c, truth, wantTruth)
	}
	p.Digest = r.digest(r.fields(fields["digest"], "max", "wait", "idle", "at", "days", "zone"))
	return p
}

func (r *policyReader) digest(fields map[string]place) (d Digest) {
	if at := fields["max"]; at.Node != nil {
		d.Max = read(r, at, notZero, wantDigestMax)
	}
	if at := fields["wait"]; at.Node != nil {
		d.Wait = read(r, at, time.ParseDuration, wantDigestWait)
	}
	if at := fields["idle"]; at.Node != nil {
		d.Idle = read(r, at, time.ParseDuration, wantDigestWait)
	}
	for _, of := range []struct {
		name string
		text *string
		want string
	}{{"at", &d.At, "a time such as 08:00"}, {"days", &d.Days, "days such as mon-fri"}, {"zone", &d.Zone, "a zone such as Europe/Paris, or user"}} {
		if at := fields[of.name]; at.Node != nil {
			*of.text = r.text(at, of.want)
		}
	}
	return d
}

// limits reads the rules of a scope, and how much of it runs at once.
func (r *policyReader) limits(fields map[string]place) Limits {
	l := Limits{Rules: r.rules(fields["rules"])}
	if at := fields["concurrency"]; at.Node != nil {
		l.Concurrency = read(r, at, concurrency, wantConcurrency)
	}
	return l
}

// capacity reads how many jobs may wait; 0 for no bound.
func (r *policyReader) capacity(fields map[string]place) int {
	if at := fields["capacity"]; at.Node != nil {
		return read(r, at, strconv.Atoi, wantCapacity)
	}
	return 0
}

// read reads a single value.
func read[V any](r *policyReader, at place, parse func(string) (V, error), want string) V {
	v, err := parse(r.text(at, want))
	if err != nil {
		r.fail(at.Line, at.path, "%q; want %s", at.Value, want)
	}
	return v
}

var errForm = errors.New("not of the form that is wanted")

// notZero reads a number of which 0 is for programs alone: there it is the default.
func notZero(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if n == 0 {
		return 0, errForm
	}
	return n, err
}

// overflow reports whether a full backlog drops its oldest job.
func overflow(text string) (bool, error) {
	if text != "drop_oldest" && text != "drop_newest" {
		return false, errForm
	}
	return text == "drop_oldest", nil
}

// concurrency reads how much runs at once: 20, or 25%.
func concurrency(text string) (c Concurrency, err error) {
	number, percent := strings.CutSuffix(text, "%")
	if c.Jobs, err = notZero(number); percent {
		c = Concurrency{Percent: c.Jobs}
	}
	return c, err
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
		path := fmt.Sprintf("%s[%d]", at.path, i)
		rule, err := ruleyaml.Read(node)
		if err != nil {
			line, what := splitLine(err.Error())
			r.fail(line, path, "%s", what)
		}
		r.found[path] = place{path, node.Line, node}
		rules = append(rules, rule)
	}
	return rules
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
		r.found[path] = place{path, key.Line, value}
		entries = append(entries, entry{name, r.found[path]})
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
