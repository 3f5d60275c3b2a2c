package api

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// sources returns the files of a package, without its tests.
func sources(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatal(dir, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// constants returns the texts of all constants in a package that have a type, or whose names begin with a prefix.
func constants(t *testing.T, dir, of string) (values []string) {
	for _, file := range sources(t, dir) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			typ, _ := spec.Type.(*ast.Ident)
			for i, value := range spec.Values {
				if typ != nil && typ.Name == of || typ == nil && strings.HasPrefix(spec.Names[i].Name, of) {
					values = append(values, literal(value)...)
				}
			}
			return true
		})
	}
	return values
}

// passed returns the texts that calls of a function in a package have as one of their arguments.
func passed(t *testing.T, dir, function string, argument int) (values []string) {
	for _, file := range sources(t, dir) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) <= argument {
				return true
			}
			name := ""
			switch f := call.Fun.(type) {
			case *ast.Ident:
				name = f.Name
			case *ast.SelectorExpr:
				name = f.Sel.Name
			}
			if name == function {
				values = append(values, literal(call.Args[argument])...)
			}
			return true
		})
	}
	return values
}

// literal returns the text that an expression is; none if it is not one.
func literal(e ast.Expr) []string {
	if basic, ok := e.(*ast.BasicLit); ok && basic.Kind == token.STRING {
		text, _ := strconv.Unquote(basic.Value)
		return []string{text}
	}
	return nil
}

// The enums of the description have the values that the code has: those of its constants, or those that it writes.
func TestEnums(t *testing.T) {
	t.Parallel()
	d := openDocument(t)
	var problems, outcomes, priorities []string
	for _, kind := range passed(t, ".", "problemf", 1) {
		problems = append(problems, "urn:waterclock:"+kind)
	}
	for o := throttle.Undecided + 1; o.String() != throttle.Undecided.String(); o++ {
		outcomes = append(outcomes, o.String())
	}
	for _, p := range []queue.Priority{queue.High, queue.Normal, queue.Low} {
		priorities = append(priorities, p.String())
	}
	want := map[string][]string{
		"ReceiptStatus":   constants(t, "..", "Status"),
		"DropReason":      constants(t, "..", "Reason"),
		"LimitScope":      constants(t, "..", "Scope"),
		"Condition":       constants(t, "../watch", "Condition"),
		"TokenScope":      constants(t, "../access", "Scope"),
		"DecideMode":      constants(t, ".", "Mode"),
		"DecisionOutcome": outcomes,
		"Priority":        priorities,
		"ProblemType":     problems,
		"JobStatus":       append(constants(t, "../internal/store", "Was"), "waiting"),
		"AttemptOutcome":  passed(t, "../internal/worker", "ended", 1),
	}
	var taken []string
	for _, reason := range reasons {
		taken = append(taken, string(reason))
	}
	if slices.Sort(taken); fmt.Sprint(taken) != fmt.Sprint(slices.Sorted(slices.Values(want["DropReason"]))) {
		t.Errorf("the parameter reason takes %q, jobs are dropped for %q", taken, want["DropReason"])
	}
	for name, values := range want {
		slices.Sort(values)
		values = slices.Compact(values)
		if got := texts(d.at(d.root, "components", "schemas", name, "enum")); len(values) < 2 || fmt.Sprint(got) != fmt.Sprint(values) {
			t.Errorf("%s: the document has %q, the code %q", name, got, values)
		}
	}
	for _, name := range keys(d.at(d.root, "components", "schemas")) {
		if _, checked := want[name]; !checked && d.at(d.root, "components", "schemas", name, "enum") != nil {
			t.Errorf("%s has an enum that nobody compares with the code", name)
		}
	}
}

// A field whose type in Go is one of a closed set is that set in the description: no enum is forgotten.
func TestEveryClosedSetIsAnEnum(t *testing.T) {
	t.Parallel()
	d := openDocument(t)
	seen := 0
	var look func(where string, schema any, of reflect.Type)
	look = func(where string, schema any, of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			if of.Kind() == reflect.Slice {
				schema = d.at(schema, "items")
			}
			of = of.Elem()
		}
		if name, ok := closed[of.PkgPath()+"."+of.Name()]; ok {
			if d.at(schema, "enum") == nil || fmt.Sprint(d.at(schema, "enum")) != fmt.Sprint(d.at(d.root, "components", "schemas", name, "enum")) {
				t.Errorf("%s is a %v; want a reference to %s", where, of, name)
			}
			seen++
			return
		}
		if of.Kind() != reflect.Struct {
			return
		}
		for _, f := range reflect.VisibleFields(of) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
				look(where+"."+name, d.at(schema, "properties", name), f.Type)
			}
		}
	}
	for _, op := range operations() {
		from := d.at(d.root, "paths", op.path, strings.ToLower(op.method))
		look(op.path, d.at(from, "responses", "200", "content", "application/json", "schema"), op.out)
	}
	look("a problem", d.at(d.root, "components", "schemas", "Problem"), reflect.TypeFor[Problem]())
	if seen < 10 {
		t.Errorf("%d fields were compared", seen)
	}
}

// closed are the types of closed sets, with their enums.
var closed = map[string]string{
	"github.com/waterclock/waterclock/queue.Status": "ReceiptStatus", "github.com/waterclock/waterclock/queue.Reason": "DropReason",
	"github.com/waterclock/waterclock/queue.Scope": "LimitScope", "github.com/waterclock/waterclock/queue/watch.Condition": "Condition",
	"github.com/waterclock/waterclock/queue/access.Scope": "TokenScope", "github.com/waterclock/waterclock/queue/api.Mode": "DecideMode",
}
