package main

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	number = regexp.MustCompile(`\d[\d,]*(?:\.\d+)?`)
	drawn  = regexp.MustCompile(`[█░]+|[▪·]{4,}`)
	spaces = regexp.MustCompile(` +`)
)

// shape is a line without its numbers and what is drawn.
func shape(line string) string {
	line = drawn.ReplaceAllString(line, "~")
	return spaces.ReplaceAllString(strings.TrimSpace(number.ReplaceAllString(line, "#")), " ")
}

// near reports whether the numbers of two lines are about the same.
func near(a, b string) bool {
	as, bs := number.FindAllString(drawn.ReplaceAllString(a, ""), -1), number.FindAllString(drawn.ReplaceAllString(b, ""), -1)
	for i := range as {
		x, _ := strconv.ParseFloat(strings.ReplaceAll(as[i], ",", ""), 64)
		y, _ := strconv.ParseFloat(strings.ReplaceAll(bs[i], ",", ""), 64)
		if math.Abs(x-y) > max(40, 0.1*math.Abs(y)) {
			return false
		}
	}
	return len(as) == len(bs)
}

// What the README shows of the story is what the program prints: line by line the same, and its
// numbers about the same.
func TestReadmeTellsTheStory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, sample, _ := strings.Cut(string(page), "still start within milliseconds:\n\n```\n")
	sample, _, _ = strings.Cut(sample, "```")
	text, err := tellStory(t)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	printed := strings.Split(text, "\n")
	n := 0
	for line := range strings.Lines(sample) {
		if line = strings.TrimRight(line, "\n"); line == "" || line == "…" {
			continue
		}
		n++
		found := false
		for _, p := range printed {
			found = found || shape(p) == shape(line) && near(line, p)
		}
		if !found {
			t.Errorf("the program does not print, or not about: %s", line)
		}
	}
	if n < 15 {
		t.Errorf("the README shows %d lines of the story", n)
	}
	if t.Failed() {
		t.Log(text)
	}
}
