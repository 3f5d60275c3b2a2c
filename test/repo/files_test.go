package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// files returns the paths of all files whose names end so, without those that npm has installed.
func files(t *testing.T, suffix string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if d.IsDir() && (len(d.Name()) > 1 && strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, suffix) {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func parse(t *testing.T, path string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func parseText(t *testing.T, text string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// The package comment is the first thing that a reader of a package meets.
func TestEveryPackageHasAComment(t *testing.T) {
	commented := make(map[string]bool)
	for _, path := range files(t, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		dir := filepath.Dir(path)
		commented[dir] = commented[dir] || parse(t, path).Doc != nil
	}
	for dir, ok := range commented {
		if !ok {
			t.Errorf("package %s has no package comment", dir)
		}
	}
}

// A script's header is all that its callers read: it begins with the script's name and
// states every argument that is used, and the reply.
func TestScriptHeaders(t *testing.T) {
	argument := regexp.MustCompile(`\b(?:ARGV|KEYS)\[\d+\]`)
	for _, path := range files(t, ".lua") {
		header, body := "", ""
		for line := range strings.Lines(read(t, path)) {
			if body == "" && strings.HasPrefix(line, "--") {
				header += line
			} else {
				body += line
			}
		}
		name := strings.TrimSuffix(filepath.Base(path), ".lua")
		if !strings.HasPrefix(header, "-- "+name) {
			t.Errorf("%s: the header does not begin with %q", path, name)
		}
		for _, used := range argument.FindAllString(body, -1) {
			if !strings.Contains(header, used) {
				t.Errorf("%s: the header does not say what %s is", path, used)
			}
		}
		if regexp.MustCompile(`(?m)^return\b`).MatchString(body) && !strings.Contains(header, "-- Returns ") {
			t.Errorf("%s: the header does not say what it returns", path)
		}
	}
}
