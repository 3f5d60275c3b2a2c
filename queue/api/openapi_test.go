package api

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waterclock/waterclock/internal/jobline"
)

// A document is openapi.yaml, and what of it was looked at.
type document struct {
	t    *testing.T
	root map[string]any
	seen map[string]bool
}

func openDocument(t *testing.T) *document {
	d := &document{t: t, seen: make(map[string]bool)}
	if err := yaml.Unmarshal(OpenAPI(), &d.root); err != nil {
		t.Fatal(err)
	}
	return d
}

// at returns a part of the document.
func (d *document) at(from any, path ...string) any {
	for _, name := range path {
		fields, _ := from.(map[string]any)
		from = d.resolve(fields[name])
	}
	return from
}

// resolve follows a reference.
func (d *document) resolve(part any) any {
	fields, _ := part.(map[string]any)
	ref, ok := fields["$ref"].(string)
	if !ok {
		return part
	}
	d.seen[ref] = true
	return d.at(d.root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
}

func keys(part any) []string {
	fields, _ := part.(map[string]any)
	return slices.Sorted(maps.Keys(fields))
}

func texts(part any) (all []string) {
	items, _ := part.([]any)
	for _, item := range items {
		all = append(all, fmt.Sprint(item))
	}
	slices.Sort(all)
	return all
}

// same compares a schema with the type that is read or written.
func (d *document) same(where string, schema any, of reflect.Type) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	schema = d.resolve(schema)
	kind := map[reflect.Kind]string{
		reflect.String: "string", reflect.Int: "integer", reflect.Int64: "integer", reflect.Bool: "boolean", reflect.Slice: "array",
		reflect.Map: "object", reflect.Struct: "object",
	}[of.Kind()]
	switch {
	case of == reflect.TypeFor[time.Time]():
		kind = "string"
		if d.at(schema, "format") != "date-time" {
			d.t.Errorf("%s: want format date-time", where)
		}
	case of.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		kind = "string"
	case of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Uint8:
		return // any JSON
	}
	if got := d.at(schema, "type"); got != kind {
		d.t.Errorf("%s: type %v; want %s", where, got, kind)
	}
	switch {
	case kind == "array":
		d.same(where+"[]", d.at(schema, "items"), of.Elem())
	case of.Kind() == reflect.Map:
		d.same(where+".*", d.at(schema, "additionalProperties"), of.Elem())
	case kind == "object":
		d.fields(where, schema, of)
	}
}

// fields compares the fields of an object, in both directions.
func (d *document) fields(where string, schema any, of reflect.Type) {
	var names, required []string
	for _, f := range reflect.VisibleFields(of) {
		name, options, tagged := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if name == "" && !tagged {
			continue // embedded
		}
		if field, _ := of.FieldByName(f.Name); !slices.Equal(field.Index, f.Index) {
			continue // hidden by another one
		}
		names = append(names, name)
		if options == "" {
			required = append(required, name)
		}
		d.same(where+"."+name, d.at(schema, "properties", name), f.Type)
	}
	slices.Sort(names)
	slices.Sort(required)
	if got := keys(d.at(schema, "properties")); !slices.Equal(got, names) {
		d.t.Errorf("%s: the document has %q, the type %q", where, got, names)
	}
	if got := texts(d.at(schema, "required")); !slices.Equal(got, required) {
		d.t.Errorf("%s: the document requires %q, the type %q", where, got, required)
	}
}

// parameters compares the parameters of an operation.
func (d *document) parameters(where string, got any, want []string) {
	items, _ := got.([]any)
	var names []string
	for _, item := range items {
		names = append(names, fmt.Sprint(d.at(d.resolve(item), "name")))
	}
	slices.Sort(names)
	if want = slices.Sorted(slices.Values(want)); !slices.Equal(names, want) {
		d.t.Errorf("%s: the document has the parameters %q, the handler %q", where, names, want)
	}
}

// The description has every operation with its parameters and every field of its bodies, and
// nothing else.
func TestOpenAPIDescribesTheHandlers(t *testing.T) {
	t.Parallel()
	d := openDocument(t)
	described := map[string]bool{"/v1/openapi.yaml get": true}
	for _, op := range operations() {
		where := op.path + " " + strings.ToLower(op.method)
		described[where] = true
		from, ok := d.at(d.root, "paths", op.path, strings.ToLower(op.method)).(map[string]any)
		if !ok {
			t.Errorf("%s is not described", where)
			continue
		}
		d.parameters(where, from["parameters"], op.query)
		if got, want := texts(from["x-scopes"]), slices.Sorted(slices.Values(op.scopes)); fmt.Sprint(got) != fmt.Sprint(want) || len(want) == 0 {
			t.Errorf("%s: x-scopes %q; the handler asks for %q", where, got, want)
		}
		d.same(where+" answers", d.at(from, "responses", "200", "content", "application/json", "schema"), op.out)
		d.same(where+" fails with", d.at(from, "responses", "default", "content", "application/problem+json", "schema"), reflect.TypeFor[Problem]())
		body := d.at(from, "requestBody", "content", "application/json", "schema")
		switch {
		case op.in == reflect.TypeFor[jobsBody]():
			kinds := d.at(body, "oneOf").([]any)
			d.same(where+" takes", kinds[0], reflect.TypeFor[JobLine]())
			d.same(where+" takes", kinds[1], reflect.TypeFor[[]JobLine]())
		case op.in == reflect.TypeFor[actionsBody]():
			kinds := d.at(body, "oneOf").([]any)
			d.same(where+" takes", kinds[0], reflect.TypeFor[Action]())
			d.same(where+" takes", kinds[1], reflect.TypeFor[[]Action]())
		case op.in != nil:
			d.same(where+" takes", body, op.in)
		case body != nil:
			t.Errorf("%s: the document has a body, the handler has none", where)
		}
	}
	for path, methods := range d.at(d.root, "paths").(map[string]any) {
		var inPath []string
		for _, m := range regexp.MustCompile(`{(.*?)}`).FindAllStringSubmatch(path, -1) {
			inPath = append(inPath, m[1])
		}
		d.parameters(path, d.at(methods, "parameters"), inPath)
		for _, method := range keys(methods) {
			if method != "parameters" && !described[path+" "+method] {
				t.Errorf("%s %s is described, and no handler answers it", path, method)
			}
		}
	}
	for _, kind := range []string{"schemas", "parameters", "responses"} {
		for _, name := range keys(d.at(d.root, "components", kind)) {
			if ref := "#/components/" + kind + "/" + name; !d.seen[ref] {
				t.Errorf("%s is described, and nothing refers to it", ref)
			}
		}
	}
}

// The description of a job has the fields that package jobline reads.
func TestJobLine(t *testing.T) {
	t.Parallel()
	names, _ := fieldNames(reflect.TypeFor[JobLine]())
	want := strings.Split(strings.Replace(jobline.Keys, " or ", ", ", 1), ", ")
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("described: %q\nread:      %q", names, want)
	}
}
