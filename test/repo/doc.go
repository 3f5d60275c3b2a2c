// Package repo is a test: it checks what no compiler checks in this repository. Commands and code
// that pages show work, links lead somewhere, scripts state their arguments, no test sleeps, and
// the tests of every module run.
package repo
