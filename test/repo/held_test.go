package repo

import (
	"regexp"
	"strings"
	"testing"
)

// held says which test holds the blocks of a language in a page, besides those that look at all pages: Go compiles
// (TestShownCodeCompiles), policy files are read (TestShownFilesAreUnderstood), and calls of our programs are understood by them
// (TestCommandLinesAreUnderstood). docs/README.md says the same to readers.
var held = map[string]string{
	"README.md json":                "test/repo/readme_test.go TestFirstCommandsRun",
	"README.md sh":                  "test/repo/readme_test.go TestFirstCommandsRun",
	"docs/api.md json":              "cmd/waterclock/api_docs_test.go TestTheCallsOfTheDocs",
	"docs/api.md sh":                "cmd/waterclock/api_docs_test.go TestTheCallsOfTheDocs",
	"docs/api.md ts":                "queue/api/interop/typescript_test.go TestTypeScriptClient",
	"docs/kubernetes.md yaml":       "deploy/check/documented_test.go TestDocumentedKustomization", // of kustomize
	"docs/limits.md python":         "cmd/waterclock/limits_docs_test.go TestTheScriptOfTheDocs",
	"docs/migrate-from-asynq.md sh": "test/repo/commands_test.go TestCommandLinesAreUnderstood",
	"docs/notify.md js":             "cmd/worker/browser_docs_test.go TestDocumentedScripts",
	"docs/notify.md json":           "cmd/worker/documented_setups_test.go TestDocumentedSetUps",
	"docs/notify.md sh":             "cmd/worker/documented_setups_test.go TestDocumentedSetUps",
	"docs/outbox.md sql":            "queue/outbox/databases/page_test.go TestPage",
}

// Every language of a block in a page has a test that reads it, and the test is there. Blocks without a language are text: what a program
// has printed, pictures, and calls of programs.
func TestEveryBlockIsHeld(t *testing.T) {
	used := make(map[string]bool)
	for _, page := range files(t, ".md") {
		if strings.HasPrefix(page, "docs/adr/") || strings.HasPrefix(page, "bench/") {
			continue
		}
		for _, m := range block.FindAllStringSubmatch(read(t, page), -1) {
			what := page + " " + m[1]
			if m[1] == "go" || m[1] == "yaml" && held[what] == "" || used[what] {
				continue
			}
			used[what] = true
			file, name, _ := strings.Cut(held[what], " ")
			switch {
			case name == "":
				t.Errorf("%s: no test reads its blocks of %s", page, m[1])
			case !regexp.MustCompile(`func ` + name + `\w*\(t \*testing\.T\)`).MatchString(read(t, file)):
				t.Errorf("%s: its blocks of %s are held by %s, which is not in %s", page, m[1], name, file)
			}
		}
	}
	for what := range held {
		if !used[what] {
			t.Errorf("no page has blocks such as %s", what)
		}
	}
}
