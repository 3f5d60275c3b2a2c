package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	testsample "github.com/waterclock/waterclock/internal/sample"
)

// asProgram makes the test binary the program itself.
const asProgram = "PUSH_NOTIFICATIONS_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Every error, a broken rule as well as a bad flag, is exit status 1.
func TestExitStatus(t *testing.T) {
	for flag, want := range map[string]int{"--help": 0, "--parents=0": 1} {
		program := exec.CommandContext(t.Context(), os.Args[0], flag)
		program.Env = append(os.Environ(), asProgram+"=1")
		text, _ := program.CombinedOutput()
		if got := program.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: exit status %d, want %d\n%s", flag, got, want, text)
		}
	}
}

// tellStory runs the program on virtual time and returns what it printed.
func tellStory(t *testing.T, args ...string) (text string, err error) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		err = run(t.Context(), args, &out, io.Discard)
		text = out.String()
	})
	return text, err
}

func TestStoryKeepsEveryLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	text, err := tellStory(t, "--parents", "300")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, want := range []string{
		"TIME IS SCALED",
		"America/Lima   it was 19:00 there: 10 notes wait until 06:00 there",
		"Asia/Bangkok   it was 07:00 there: 10 notes arrived",
		"teacher-7      20 replies came as one notification, 3.0 s after the first of them",
		"a family   no note at night, by its own clock 10 by day, 10 wait for the morning              kept",
		"oak sends an announcement to 300 parents",
		"0 min  ▪·▪·▪", // the busy teacher's first minute
		"cedar   full",
		"refused by window 50/1h12m",
		"collapsed",
		"through asynq.Client",
		"window 10/3s                       10 at most: teacher-42 at birch",
		"asked to wait, then none for 3.0 s",
		"  a school   6 of 12 places                     6 at most: cedar                                kept",
		"All 16 limits were kept.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if !regexp.MustCompile(`4 min  ·?▪·`).MatchString(text) { // a column is 75 ms
		t.Error("the busy teacher gets nothing at the beginning of the last minute")
	}
	if strings.Contains(text, "\x1b") {
		t.Error("cursor movements in what is no terminal")
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestFalseStartIsFound(t *testing.T) {
	text, err := tellStory(t, "--parents", "10", "--cheat")
	if !errors.Is(err, errBroken) {
		t.Fatalf("error %v, want %v\n%s", err, errBroken, text)
	}
	for _, line := range strings.Split(text, "\n") {
		if strings.Contains(line, "spacing 150ms  ") && !strings.Contains(line, "BROKEN (1)") {
			t.Errorf("the false start is not in the verdict: %s", line)
		}
	}
}

func TestRefusals(t *testing.T) {
	testsample.Slow(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--parents", "0"}, "--parents 0: at least 1"},
		{[]string{"--parent", "5"}, "unknown flag: --parent"},
		{[]string{"--redis", "nonsense"}, "--redis nonsense: "},
		{[]string{"--fcm-targets", "a", "--apns-targets", "b"}, "--fcm-targets, --apns-targets: one provider at a time"},
		{[]string{"--apns-targets", "a"}, "--apns-key-id: the sender apns needs it"},
		{[]string{"--secret-file", "a"}, "--secret-file: only the senders fcm, apns, webpush, webhook use it"},
		{[]string{"--fcm-targets", "no-such-file"}, "--fcm-targets: open no-such-file: "},
		{[]string{"--redis", "redis://127.0.0.1:1/0"}, "127.0.0.1:1"},
	} {
		err := run(t.Context(), c.args, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want one with %q", c.args, err, c.want)
		}
	}
	if err := run(t.Context(), []string{"--help"}, io.Discard, io.Discard); err != nil {
		t.Errorf("--help: %v", err)
	}
}

func TestBusiestAndClosest(t *testing.T) {
	at := func(ms ...int) (events []start) {
		for _, m := range ms {
			var s start
			s.Started = time.UnixMilli(int64(m))
			events = append(events, s)
		}
		return events
	}
	events := userEvents(at(0, 400, 1000, 1399, 1400))
	if most, _ := busiest(events, time.Second); most != 3 {
		t.Errorf("busiest second has %d starts, want 3: one exactly a second old no longer counts", most)
	}
	if d := closest(events); d != time.Millisecond {
		t.Errorf("closest %v, want 1ms", d)
	}
	if d := closest(userEvents(at(7, 7, 9))); d != 0 {
		t.Errorf("closest %v, want 0: two at once", d)
	}
}
