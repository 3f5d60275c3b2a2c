package repo

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/internal/senders"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/access"
	"github.com/waterclock/waterclock/throttle"
	"github.com/waterclock/waterclock/throttle/limits"
)

var block = regexp.MustCompile("(?s)```(\\w+)\n(.*?)```")

// blocks returns the code blocks of a language in a page.
func blocks(page, language string) (found []string) {
	for _, m := range block.FindAllStringSubmatch(page, -1) {
		if m[1] == language {
			found = append(found, m[2])
		}
	}
	return found
}

// What the README shows is code that runs: each block stands in examples/doors, indented once.
func TestReadmeCodeIsReal(t *testing.T) {
	doors := read(t, "examples/doors/doors.go")
	shown := blocks(read(t, "README.md"), "go")
	if len(shown) < 3 {
		t.Errorf("the README shows %d blocks of Go, want 3", len(shown))
	}
	indent := regexp.MustCompile(`(?m)^(.)`)
	for _, code := range shown {
		if !strings.Contains(doors, indent.ReplaceAllString(code, "\t$1")) {
			t.Errorf("not in examples/doors/doors.go:\n%s", code)
		}
	}
}

// What the page of a first service shows is code that runs, too, and its policies are those of the service.
func TestFirstServiceIsReal(t *testing.T) {
	page := read(t, "docs/first-service.md")
	code := read(t, "examples/service/main.go") + read(t, "examples/service/main_test.go")
	shown := blocks(page, "go")
	if len(shown) < 4 {
		t.Errorf("the page shows %d blocks of Go, want 4", len(shown))
	}
	for _, block := range shown {
		if !strings.Contains(code, block) {
			t.Errorf("not in examples/service:\n%s", block)
		}
	}
	if yaml := blocks(page, "yaml"); len(yaml) != 1 || yaml[0] != read(t, "examples/service/policies.yaml") {
		t.Error("the page's policies differ from examples/service/policies.yaml")
	}
}

// The README's policies are those of the examples.
func TestReadmePoliciesAreReal(t *testing.T) {
	file := read(t, "examples/policies.yaml")
	if _, err := queue.ParsePolicies("examples/policies.yaml", []byte(file)); err != nil {
		t.Error(err)
	}
	if shown := blocks(read(t, "README.md"), "yaml"); len(shown) != 2 || shown[0] != file { // and limits by name, see below
		t.Error("the README's policies differ from examples/policies.yaml")
	}
}

// The policy files of the examples stand in pages as they are.
func TestExamplesOfPoliciesAreShown(t *testing.T) {
	var shown []string
	for _, page := range files(t, ".md") {
		shown = append(shown, blocks(read(t, page), "yaml")...)
	}
	n := 0
	for _, file := range files(t, ".yaml") {
		if filepath.Dir(file) != "examples/policies" {
			continue
		}
		n++
		if !slices.Contains(shown, read(t, file)) {
			t.Errorf("no page shows %s as it is", file)
		}
	}
	if n < 17 {
		t.Errorf("%d files: the test reads nothing", n)
	}
}

// Every file of policies, tokens or senders that a page shows can be read.
func TestShownFilesAreUnderstood(t *testing.T) {
	n := 0
	for _, page := range files(t, ".md") {
		for _, text := range blocks(read(t, page), "yaml") {
			if strings.HasPrefix(text, "   ") { // it stands in a list
				text = regexp.MustCompile(`(?m)^   `).ReplaceAllString(text, "")
			}
			var err error
			switch {
			case regexp.MustCompile(`(?m)^limits:`).MatchString(text):
				_, err = limits.Parse(page, []byte(text), throttle.New(throttle.NewMemoryStore()))
				if err == nil {
					_, err = queue.ParsePolicies(page, []byte(text))
				}
			case regexp.MustCompile(`(?m)^policies:`).MatchString(text):
				_, err = queue.ParsePolicies(page, []byte(text))
			case regexp.MustCompile(`(?m)^tokens:`).MatchString(text):
				_, err = access.Parse(page, []byte(text))
			case regexp.MustCompile(`(?m)^providers:`).MatchString(text):
				name := filepath.Join(t.TempDir(), "notify.yaml")
				if err = os.WriteFile(name, []byte(text), 0o600); err == nil {
					_, err = senders.ReadFile(name)
				}
			default:
				if held[page+" yaml"] == "" {
					t.Errorf("%s: no test reads this block:\n%s", page, text)
				}
				continue
			}
			n++
			if err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		}
	}
	if n < 16 {
		t.Errorf("%d files of policies: the test reads nothing", n)
	}
}

// Links between pages lead somewhere, to a heading too.
func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	for _, page := range files(t, ".md") {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, m[1])
			} else if m[2] != "" && !slices.Contains(anchors(read(t, target)), m[2]) {
				t.Errorf("%s links to %s#%s, and there is no such heading", page, m[1], m[2])
			}
		}
	}
}

// anchors are the names of a page's headings in links.
func anchors(page string) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		name := strings.ToLower(regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(m[1], ""))
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// The index leads to every page.
func TestIndexIsComplete(t *testing.T) {
	index := read(t, "docs/README.md")
	for _, page := range files(t, ".md") {
		if dir, name := filepath.Split(page); dir == "docs/" && name != "README.md" && !strings.Contains(index, "("+name) {
			t.Errorf("docs/README.md does not lead to %s", name)
		}
	}
}

// Go code in pages compiles, as far as a piece of it can: what it names of packages exists, and
// takes what it is given. Names that begin small and are not there are the reader's own.
func TestShownCodeCompiles(t *testing.T) {
	sample.Slow(t)
	export := exports(t)
	set := token.NewFileSet()
	pkgs := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) {
		file, ok := export[path]
		if !ok {
			return nil, fmt.Errorf("no package %s", path)
		}
		return os.Open(file)
	})
	n := 0
	for _, page := range files(t, ".md") {
		for i, code := range blocks(read(t, page), "go") {
			n++
			file, err := parseSnippet(set, fmt.Sprintf("%s, block %d", page, i+1), code)
			if err != nil {
				t.Error(err)
				continue
			}
			config := types.Config{Importer: pkgs, Error: func(err error) {
				if !harmless(err.Error()) {
					t.Error(err)
				}
			}}
			_, _ = config.Check(page, set, []*ast.File{file}, nil) // errors are told above
		}
	}
	if n < 10 {
		t.Errorf("%d blocks of Go: the test reads nothing", n)
	}
}

// What a piece of code lacks that is not wrong with it.
func harmless(text string) bool {
	return regexp.MustCompile(`declared and not used|undefined: [a-z]\w*$|missing return|imported and not used|is not used$|too many return values|not enough return values`).MatchString(text)
}

// snippetImports are the packages that pages show code of, by the names that they are used by.
func snippetImports() map[string]string {
	const module = "github.com/waterclock/waterclock/"
	return map[string]string{
		"queue": module + "queue", "throttle": module + "throttle", "notify": module + "notify",
		"queuetest": module + "queue/queuetest", "throttlehttp": module + "throttle/throttlehttp", "notifytest": module + "notify/notifytest",
		"asynq": "github.com/hibiken/asynq", "redis": "github.com/redis/go-redis/v9", "context": "context", "errors": "errors",
		"fmt": "fmt", "http": "net/http", "log": "log", "slog": "log/slog", "os": "os", "strings": "strings", "testing": "testing", "time": "time",
		"outbox": module + "queue/outbox", "sql": "database/sql", "driver": "database/sql/driver",
		"json": "encoding/json", "synctest": "testing/synctest",
	}
}

// exports returns where the compiled packages are.
func exports(t *testing.T) map[string]string {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	for _, path := range snippetImports() {
		args = append(args, path)
	}
	list := exec.Command("go", args...)
	list.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	found := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		found[path] = file
	}
	return found
}

// parseSnippet makes a file of a block: of declarations, or of statements.
func parseSnippet(set *token.FileSet, name, code string) (*ast.File, error) {
	head := "package snippet\n"
	if imports := regexp.MustCompile(`(?s)^import \(.*?\n\)\n`).FindString(code); imports != "" {
		code = strings.TrimPrefix(code, imports)
	}
	for as, path := range snippetImports() {
		if regexp.MustCompile(`\b` + as + `\.[A-Z]`).MatchString(code) {
			head += fmt.Sprintf("import %s %q\n", as, path)
		}
	}
	file, err := parser.ParseFile(set, name, head+code, 0)
	if err == nil {
		return file, nil
	}
	return parser.ParseFile(set, name, head+"func _() error {\n"+code+"\n}\n", 0)
}
