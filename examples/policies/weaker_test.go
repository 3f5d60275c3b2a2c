package policies

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/throttle"
	"github.com/waterclock/waterclock/throttle/limits"
)

// A weaker policy is a recipe's in which one number lets through more.
type weaker struct {
	recipe
	change  string // what was changed
	text    string
	running bool // the number says how much runs at once
}

// Each number of each file is made weaker, and the textbook has to notice by the limiter's log.
func TestAWeakerPolicyIsNoticed(t *testing.T) {
	sample.Slow(t)
	for _, w := range weakerOnes(t) {
		if w.running {
			continue
		}
		t.Run(w.change, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set, err := limits.Parse(w.file, []byte(w.text), throttle.New(throttle.NewMemoryStore()))
				if err != nil {
					t.Fatal(err)
				}
				if broken, _ := judge(rates(w.recipe), byTheLimiter(t, w.recipe, set), 0); len(broken) == 0 {
					t.Error("the textbook has not noticed")
				}
			})
		})
	}
}

// And by the log of a queue.
func TestAWeakerPolicyIsNoticedInAQueue(t *testing.T) {
	for _, w := range sample.Draw(t, weakerOnes(t), 0, 2) {
		t.Run(w.change, func(t *testing.T) {
			log, _ := inAQueue(t, w.recipe, w.text, w.traffic)
			if broken, _ := judge(w.promises, log, grace); len(broken) == 0 {
				t.Error("the textbook has not noticed")
			}
		})
	}
}

// number finds what a policy file lets through: a count, or the distance of a spacing.
var number = regexp.MustCompile(`(?:leak|token_bucket|window|burst|concurrency|spacing): (\d+)(%|s)?`)

// weakerOnes returns a policy for each number in the files: twice as much, or half the distance. A shadow rule has no effect, and
// neither have the rules of a limit whose values all have rules of their own.
func weakerOnes(t *testing.T) (all []weaker) {
	t.Helper()
	for _, r := range recipes {
		text := read(t, r.file)
		for _, at := range number.FindAllStringSubmatchIndex(text, -1) {
			rule, from, to := text[at[0]:at[1]], at[2], at[3]
			line := strings.Count(text[:from], "\n") + 1
			ownOnly := strings.Contains(text, "\"*\": unlimited") && strings.HasPrefix(lineOf(text, from), "    rules:")
			if ownOnly || strings.Contains(lineOf(text, from), "shadow: true") {
				continue
			}
			n, err := strconv.Atoi(text[from:to])
			if err != nil {
				t.Fatal(err)
			}
			more := fmt.Sprint(2 * n)
			switch {
			case strings.HasPrefix(rule, "spacing"):
				more = "0.5"
			case strings.HasSuffix(rule, "%"):
				more = fmt.Sprint(min(100, 2*n))
			}
			all = append(all, weaker{
				recipe: r, change: fmt.Sprintf("%s:%d: %s", r.file, line, rule), text: text[:from] + more + text[to:],
				running: strings.HasPrefix(rule, "concurrency"),
			})
		}
	}
	if len(all) < 40 {
		t.Fatalf("%d numbers: the test reads nothing", len(all))
	}
	return all
}

// lineOf returns the line of a text that has the byte at an index.
func lineOf(text string, at int) string {
	from := strings.LastIndexByte(text[:at], '\n') + 1
	line, _, _ := strings.Cut(text[from:], "\n")
	return line
}
