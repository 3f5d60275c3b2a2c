package access

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// A mistake is an error of a file, which wraps [ErrInvalidFile] without repeating it.
type mistake string

func (m mistake) Error() string { return string(m) }
func (m mistake) Unwrap() error { return ErrInvalidFile }

// Parse reads the text of a file of tokens, strictly: the error wraps [ErrInvalidFile], and says in which line and field something is
// wrong, and what would be right. No error has a hash in it. The name is the file's, for errors.
func Parse(name string, data []byte) ([]Token, error) {
	r := reader{file: name}
	tokens := r.tokens(data)
	return tokens, r.err
}

// A reader walks the nodes of a file and keeps the first error.
type reader struct {
	file string
	err  error
}

func (r *reader) fail(line int, path, format string, args ...any) {
	if r.err == nil {
		r.err = mistake(fmt.Sprintf("%s:%d: ", r.file, line) + strings.TrimPrefix(path+": ", ": ") + fmt.Sprintf(format, args...))
	}
}

func (r *reader) tokens(data []byte) (all []Token) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF), err == nil && null(document.Content[0]):
		r.fail(1, "", "the file is empty; want tokens: [] if there are to be none")
		return nil
	case err != nil:
		line, what := syntax(err)
		r.fail(line, "", "not YAML: %s", what)
		return nil
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		r.fail(max(1, second.Line), "", "a second document begins; want one")
		return nil
	}
	root := document.Content[0]
	list := r.fields(root, "", "tokens")["tokens"]
	if list == nil || list.Kind != yaml.SequenceNode {
		r.fail(root.Line, "tokens", "%s; want a list of tokens", kind(list))
		return nil
	}
	lines := make(map[[32]byte]int)
	for i, node := range list.Content {
		path := fmt.Sprintf("tokens[%d]", i)
		token := r.token(node, path)
		if first, twice := lines[token.hash]; twice {
			r.fail(node.Line, path+".hash", "is that of the token in line %d; want another token", first)
		}
		lines[token.hash] = node.Line
		all = append(all, token)
	}
	return all
}

// names are those that tokens may have: they are shown, and stand in logs.
var names = regexp.MustCompile(`^[\pL\pN][\pL\pN ._@+-]{0,62}$`)

// queues are names of queues, with * for any text.
var queues = regexp.MustCompile(`^[^\s{}]{1,200}$`)

func (r *reader) token(node *yaml.Node, path string) (t Token) {
	fields := r.fields(node, path, "name", "hash", "scopes", "queues", "expires")
	field := func(name, want string) (*yaml.Node, string) {
		at := fields[name]
		if at == nil {
			r.fail(node.Line, path+"."+name, "is missing; want %s", want)
			at = &yaml.Node{Line: node.Line}
		}
		return at, path + "." + name
	}
	const wantName = "who it is: a letter or digit, then up to 62 of them, spaces or ._@+-"
	at, where := field("name", wantName)
	if t.Name = at.Value; at.Kind != yaml.ScalarNode || !names.MatchString(t.Name) {
		r.fail(at.Line, where, "%s; want %s", kind(at), wantName)
	}
	const wantHash = "sha256: and 64 hexadecimal digits, as waterclock token new prints it"
	at, where = field("hash", wantHash)
	digits, known := strings.CutPrefix(at.Value, hashKind)
	if sum, err := hex.DecodeString(digits); err != nil || !known || len(sum) != len(t.hash) {
		r.fail(at.Line, where, "is none; want %s", wantHash) // it may be the token itself, which is not to be in a log
	} else {
		t.hash = [32]byte(sum)
	}
	at, where = field("scopes", "a list such as [offer]")
	for i, text := range r.list(at, where, "a list such as [offer]") {
		if !slices.Contains(Scopes(), Scope(text)) {
			r.fail(at.Content[i].Line, where, "%q; want offer, read, steer or decide", text)
		}
		t.Scopes = append(t.Scopes, Scope(text))
	}
	const wantQueues = `a list of names, exact or with *, such as [push, mail-*]; ["*"] is all`
	if slices.ContainsFunc(t.Scopes, Scope.OfQueues) || r.err != nil {
		at, where = field("queues", wantQueues)
		t.Queues = r.list(at, where, wantQueues)
		for i, text := range t.Queues {
			if !queues.MatchString(text) {
				r.fail(at.Content[i].Line, where, "%q; want the name of a queue, exact or with *", text)
			}
		}
	} else if at := fields["queues"]; at != nil {
		r.fail(at.Line, path+".queues", "means nothing for scope decide; want it left out")
	}
	if at := fields["expires"]; at != nil {
		var err error
		if t.Expires, err = time.Parse(time.RFC3339, at.Value); err != nil {
			r.fail(at.Line, path+".expires", "%s; want an instant such as 2027-01-01T00:00:00Z", kind(at))
		}
	}
	return t
}

// list returns the texts of a list that is not empty.
func (r *reader) list(at *yaml.Node, path, want string) (texts []string) {
	if at.Kind != yaml.SequenceNode || len(at.Content) == 0 {
		r.fail(at.Line, path, "%s; want %s", kind(at), want)
		return nil
	}
	for _, item := range at.Content {
		if item.Kind != yaml.ScalarNode || null(item) {
			r.fail(item.Line, path, "%s; want %s", kind(item), want)
		}
		texts = append(texts, item.Value)
	}
	return texts
}

// fields returns the values of a mapping that has no other keys than those known.
func (r *reader) fields(node *yaml.Node, path string, known ...string) map[string]*yaml.Node {
	if node.Kind != yaml.MappingNode {
		r.fail(node.Line, path, "%s; want the keys %s", kind(node), strings.Join(known, ", "))
		return nil
	}
	all := make(map[string]*yaml.Node)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		where := strings.TrimPrefix(path+"."+key.Value, ".")
		switch {
		case !slices.Contains(known, key.Value):
			r.fail(key.Line, where, "unknown key; want %s", strings.Join(known, ", "))
		case all[key.Value] != nil:
			r.fail(key.Line, where, "appears twice; want it once")
		}
		all[key.Value] = value
	}
	return all
}

func null(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" }

// kind names what a node is, for people.
func kind(node *yaml.Node) string {
	switch {
	case node == nil || node.Kind == 0 || null(node):
		return "nothing"
	case node.Kind == yaml.MappingNode:
		return "keys and values"
	case node.Kind == yaml.SequenceNode && len(node.Content) == 0:
		return "an empty list"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case node.Kind == yaml.AliasNode:
		return "an alias"
	}
	return fmt.Sprintf("%q", node.Value)
}

// syntax returns the line that a syntax error names, 1 if it names none, and what is wrong.
func syntax(err error) (line int, what string) {
	what = strings.TrimPrefix(err.Error(), "yaml: ")
	if n, _ := fmt.Sscanf(what, "line %d:", &line); n == 0 {
		return 1, what
	}
	_, what, _ = strings.Cut(what, ": ")
	return line, what
}
