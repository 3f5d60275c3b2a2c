package repo

import (
	"go/ast"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A test that sleeps is slow or flaky; in a synctest bubble sleeping takes no time. No test
// may reach a time.Sleep by calls within its package, except through a bubble.
func TestNoSleepOutsideOfBubbles(t *testing.T) {
	packages := make(map[string]*testCode)
	for _, path := range files(t, "_test.go") {
		dir := filepath.Dir(path)
		if packages[dir] == nil {
			packages[dir] = &testCode{functions: make(map[string][]*ast.FuncDecl)}
		}
		for _, decl := range parse(t, path).Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				packages[dir].functions[f.Name.Name] = append(packages[dir].functions[f.Name.Name], f)
			}
		}
	}
	tests := 0
	for dir, code := range packages {
		for name := range code.functions {
			if strings.HasPrefix(name, "Test") {
				tests++
				if way := code.sleeps(name, nil); way != nil {
					t.Errorf("%s: %s sleeps outside of a synctest bubble", dir, strings.Join(way, " → "))
				}
			}
		}
	}
	if tests < 400 {
		t.Errorf("%d tests: this one looks in the wrong place", tests)
	}
}

// The rule finds a sleep in a helper, and none in a bubble.
func TestSleepsAreFound(t *testing.T) {
	code := &testCode{functions: make(map[string][]*ast.FuncDecl)}
	file := parseText(t, `package p
func TestDirect() { time.Sleep(1) }
func TestHelped() { for { x.helper() } }
func (x) helper() { if true { time.Sleep(1) } }
func TestBubble() { synctest.Test(t, func() { time.Sleep(1); helper() }) }
func TestStages() { onStages(t, func() { helper() }) }
func onStages(t, play func()) { synctest.Test(t, func() { play() }) }
func TestNamed() { synctest.Test(t, body) }
func body() { time.Sleep(1) }
func TestKept() { h := func() { time.Sleep(1) }; f := HandlerFunc(func() { time.Sleep(1) }); use(h, f) }
func TestBeside() { synctest.Test(t, func() { time.Sleep(1) }); func() { time.Sleep(1) }() }`)
	for _, decl := range file.Decls {
		f := decl.(*ast.FuncDecl)
		code.functions[f.Name.Name] = append(code.functions[f.Name.Name], f)
	}
	for name, want := range map[string]bool{
		"TestDirect": true, "TestHelped": true, "TestBubble": false, "TestStages": false, "TestNamed": false, "TestKept": false, "TestBeside": true,
	} {
		if got := code.sleeps(name, nil) != nil; got != want {
			t.Errorf("%s: found %v, want %v", name, got, want)
		}
	}
}

// testCode is the functions of a package's tests, by name; methods of a name are taken together.
type testCode struct {
	functions map[string][]*ast.FuncDecl
}

// sleeps returns the calls by which a function comes to sleep outside of a bubble, nil if none do.
func (c *testCode) sleeps(name string, way []string) (found []string) {
	if slices.Contains(way, name) {
		return nil
	}
	way = append(slices.Clone(way), name)
	for _, f := range c.functions[name] {
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.CompositeLit, *ast.AssignStmt:
				return found == nil && !keepsFunction(n)
			}
			call, ok := n.(*ast.CallExpr)
			if !ok || found != nil {
				return found == nil
			}
			called, pkg := nameOf(call)
			switch {
			case pkg == "time" && called == "Sleep":
				found = append(slices.Clone(way), "time.Sleep")
			case c.bubbles(called, pkg), strings.HasSuffix(called, "Func"):
				return false // what is passed to it runs in there, or is kept for later
			default:
				found = c.sleeps(called, way)
			}
			return found == nil
		})
	}
	return found
}

// keepsFunction reports whether a function is kept for later, as a field or a variable: nobody
// knows where it will run.
func keepsFunction(n ast.Node) bool {
	values := []ast.Expr{}
	switch n := n.(type) {
	case *ast.CompositeLit:
		values = n.Elts
	case *ast.AssignStmt:
		values = n.Rhs
	}
	return slices.ContainsFunc(values, func(v ast.Expr) bool {
		if pair, ok := v.(*ast.KeyValueExpr); ok {
			v = pair.Value
		}
		_, ok := v.(*ast.FuncLit)
		return ok
	})
}

// bubbles reports whether a function runs what it is given in a bubble.
func (c *testCode) bubbles(name, pkg string) bool {
	if pkg == "synctest" && name == "Test" || pkg == "queuetest" && name == "Run" {
		return true
	}
	for _, f := range c.functions[name] {
		takes := slices.ContainsFunc(f.Type.Params.List, func(p *ast.Field) bool { _, ok := p.Type.(*ast.FuncType); return ok })
		inside := false
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				called, of := nameOf(call)
				inside = inside || of == "synctest" && called == "Test"
			}
			return !inside
		})
		if takes && inside {
			return true
		}
	}
	return false
}

// nameOf returns the name of what is called, and of what it is selected from.
func nameOf(call *ast.CallExpr) (name, of string) {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name, ""
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return f.Sel.Name, x.Name
		}
		return f.Sel.Name, "?"
	}
	return "", ""
}
