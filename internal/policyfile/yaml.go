package policyfile

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Nodes and errors of the YAML parser, as people read them.

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
