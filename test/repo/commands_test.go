package repo

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/waterclock/waterclock/internal/sample"
)

// programs are the commands that pages and files of deploy call, by what they are built from.
func programs() map[string]string {
	return map[string]string{
		"worker": "./cmd/worker", "producer": "./cmd/producer", "waterclock": "./cmd/waterclock",
		"push-notifications": "./examples/push-notifications", "bench": "./bench",
	}
}

// built builds the commands, once, into a directory that [TestMain] removes.
var built = sync.OnceValues(func() (dir string, err error) {
	dir = os.Getenv(builtDir)
	args := append([]string{"build", "-o", dir + "/"}, slices.Sorted(maps.Values(programs()))...)
	build := exec.Command("go", args...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as they are released
	if out, err := build.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("go %q: %w\n%s", args, err, out)
	}
	return dir, nil
})

// buildPrograms returns the directory that the commands are in.
func buildPrograms(t *testing.T) (dir string) {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// A commandLine is a call of one of the programs somewhere in the repository.
type commandLine struct {
	where   string
	program string
	args    []string
}

// Every command line in a page, in help, or in a file of deploy is one that the program
// understands, and every flag that is named alone is a flag of one of them.
func TestCommandLinesAreUnderstood(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the commands")
	}
	dir := buildPrograms(t)
	lines := deployedCommands(t)
	var flags []commandLine
	for _, page := range files(t, ".md") {
		found, named := commandsOf(page, read(t, page))
		lines, flags = append(lines, found...), append(flags, named...)
	}
	for program := range programs() {
		out, err := exec.Command(filepath.Join(dir, program), "--help").CombinedOutput()
		if err != nil {
			t.Fatalf("%s --help: %v\n%s", program, err, out)
		}
		found, _ := commandsOf(program+" --help", string(out))
		lines = append(lines, found...)
	}
	if len(lines) < 50 || len(flags) < 20 {
		t.Fatalf("%d command lines and %d flags: the test reads nothing", len(lines), len(flags))
	}
	understood, every := understand(dir), subcommands(t, dir)
	for _, l := range sample.Draw(t, lines, 0, 100) {
		if why := understood(l); why != "" {
			t.Errorf("%s: %s %s: %s", l.where, l.program, strings.Join(l.args, " "), why)
		}
	}
	for _, l := range sample.Draw(t, flags, 0, 50) {
		name, _, _ := strings.Cut(l.args[0], "=")
		// Those whose help names it are asked first: to start all of them for each flag takes half a minute.
		asked := slices.SortedStableFunc(slices.Values(every), func(a, b command) int {
			return cmp.Compare(strings.Count(b.help, name), strings.Count(a.help, name))
		})
		known := slices.ContainsFunc(asked, func(of command) bool {
			call := commandLine{program: of.program, args: append(slices.Clone(of.args), l.args...)}
			return !strings.Contains(understood(call), "unknown flag")
		})
		if !known {
			t.Errorf("%s: no command has %s", l.where, l.args[0])
		}
	}
}

// The test above objects to what is wrong.
func TestWrongCommandLinesAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the commands")
	}
	dir := buildPrograms(t)
	page := "```sh\nbin/worker --queue push \\\n  --polices x\n```\nwith `producer --vai asynq`, `waterclock wyh school`, `--sendr log` and `worker --concurrency many`.\n\n    $ waterclock why a b --jsno | jq\n"
	lines, flags := commandsOf("a page", page)
	if len(lines) != 5 || len(flags) != 1 {
		t.Fatalf("found %q and %q", lines, flags)
	}
	understood := understand(dir)
	for _, l := range append(lines, commandLine{program: "worker", args: flags[0].args}) {
		if understood(l) == "" {
			t.Errorf("nothing is wrong with %s %q", l.program, l.args)
		}
	}
}

// understand returns a function that says why a program does not understand a call, "" if it
// does. Asked for help as well, it reads its flags and does nothing.
func understand(dir string) func(l commandLine) (why string) {
	answers := make(map[string]string)
	return func(l commandLine) string {
		key := fmt.Sprint(l.program, l.args)
		if answer, known := answers[key]; known {
			return answer
		}
		answer := ""
		args := slices.Clone(l.args)
		if n := len(args); n > 0 && strings.HasPrefix(args[n-1], "--") && !strings.Contains(args[n-1], "=") {
			args = append(args, "1") // or --help would be its value
		}
		out, err := exec.Command(filepath.Join(dir, l.program), append(args, "--help")...).CombinedOutput()
		switch sub := firstWord(l.args); {
		case err != nil:
			answer = strings.TrimSpace(string(out))
		case l.program == "waterclock" && sub != "" && !strings.Contains(string(out), "\n  waterclock "+sub):
			answer = fmt.Sprintf("there is no %q", sub)
		}
		answers[key] = answer
		return answer
	}
}

func firstWord(args []string) string {
	if len(args) > 0 && regexp.MustCompile(`^[a-z]+$`).MatchString(args[0]) && args[0] != "help" {
		return args[0]
	}
	return ""
}

// A command is a program, or a command of one, and what it says of itself.
type command struct {
	program string
	args    []string
	help    string
}

// subcommands are the programs, and the commands of waterclock.
func subcommands(t *testing.T, dir string) (all []command) {
	t.Helper()
	add := func(program string, args ...string) (names []string) {
		out, err := exec.Command(filepath.Join(dir, program), append(args, "--help")...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", program, args, err, out)
		}
		all = append(all, command{program, args, string(out)})
		for _, m := range regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) {2,}\S`).FindAllStringSubmatch(string(out), -1) {
			names = append(names, m[1])
		}
		return names
	}
	for program := range programs() {
		if program != "waterclock" {
			add(program)
		}
	}
	for _, name := range add("waterclock") {
		subs := add("waterclock", name)
		if name == "policies" {
			for _, sub := range subs {
				add("waterclock", name, sub)
			}
		}
	}
	return all
}

var (
	fenced = regexp.MustCompile("(?s)```\\w*\n(.*?)```")
	span   = regexp.MustCompile("`([^`\n]+)`")
	called = regexp.MustCompile(`^(?:\$ )?(?:[A-Z_]+=\S* )*(?:go run \./(?:(?:cmd|examples)/)?|(?:/usr/local/)?bin/|waterclock-|)(worker|producer|waterclock|push-notifications|bench)(?: (.*))?$`)
)

// commandsOf returns the calls in a text, and the flags that are named alone.
func commandsOf(where, text string) (lines, flags []commandLine) {
	add := func(line string) {
		for _, part := range regexp.MustCompile(` ?(?:\||&&|;|>>?) ?`).Split(line, -1) {
			part = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(part), "&"))
			if m := called.FindStringSubmatch(part); m != nil {
				lines = append(lines, commandLine{where, m[1], words(m[2])})
			}
		}
	}
	shell := func(block string) {
		for line := range strings.Lines(regexp.MustCompile(`\\\n\s*`).ReplaceAllString(block, "")) {
			line, _, _ = strings.Cut(line, " #")
			add(strings.TrimSpace(line))
		}
	}
	for _, m := range fenced.FindAllStringSubmatch(text, -1) {
		shell(m[1])
	}
	text = fenced.ReplaceAllString(text, "")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "  ") && !strings.Contains(line, "`") {
			shell(line)
		}
	}
	for _, m := range span.FindAllStringSubmatch(text, -1) {
		code := strings.ReplaceAll(m[1], "\\|", "|")
		switch {
		case strings.HasPrefix(code, "--"):
			name, _, _ := strings.Cut(strings.TrimRight(words(code)[0], ",."), "=")
			flags = append(flags, commandLine{where: where, args: []string{name + "=1"}})
		case strings.Contains(code, " "):
			add(code)
		}
	}
	return lines, flags
}

// words splits as a shell does, without its expansions. What stands for something is a word.
func words(line string) (all []string) {
	for _, m := range regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s]+`).FindAllString(line, -1) {
		if m == "…" || strings.HasPrefix(m, "[") {
			continue
		}
		all = append(all, strings.Trim(m, `'"`))
	}
	return all
}

// deployedCommands returns the calls in the files that deploy.
func deployedCommands(t *testing.T) (lines []commandLine) {
	t.Helper()
	for _, file := range files(t, ".yaml") {
		if strings.HasPrefix(file, "deploy/") {
			decoder := yaml.NewDecoder(strings.NewReader(read(t, file)))
			for {
				var node yaml.Node
				if decoder.Decode(&node) != nil {
					break
				}
				lines = append(lines, sequences(file, &node)...)
			}
		}
	}
	for _, file := range files(t, ".service") {
		for _, m := range regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindAllStringSubmatch(read(t, file), -1) {
			found, _ := commandsOf(file, "    "+m[1])
			lines = append(lines, found...)
		}
	}
	if len(lines) < 5 {
		t.Errorf("%d calls in deploy", len(lines))
	}
	return lines
}

// sequences returns the calls that are lists of words.
func sequences(where string, node *yaml.Node) (lines []commandLine) {
	if node.Kind == yaml.SequenceNode && len(node.Content) > 0 {
		var line []string
		for _, n := range node.Content {
			line = append(line, n.Value)
		}
		if m := called.FindStringSubmatch(path.Base(line[0])); m != nil {
			lines = append(lines, commandLine{where, m[1], line[1:]})
		}
	}
	for _, n := range node.Content {
		lines = append(lines, sequences(where, n)...)
	}
	return lines
}
