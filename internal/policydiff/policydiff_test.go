package policydiff

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// domain is a limit by name, and change what is different in it.
func domain(change func(l *queue.Limit)) queue.Policies {
	l := queue.Limit{
		Types: []string{"mail"}, Key: []string{"keys.domain"}, Rules: []throttle.Rule{throttle.Leak(10, time.Second)},
		Each: map[string]queue.Limit{"gmail.com": {Rules: []throttle.Rule{throttle.Leak(100, time.Second)}}, "*.free": {Unlimited: true}},
	}
	change(&l)
	return queue.Policies{Limits: map[string]queue.Limit{"domain": l}}
}

// Whatever changes in a limit by name is told, below the lines that lead to it, and nothing else.
func TestChangesOfLimits(t *testing.T) {
	for name, c := range map[string]struct {
		change func(l *queue.Limit)
		want   []string // each line's sign and text, without the blanks between them
	}{
		"rules":       {func(l *queue.Limit) { l.Rules = []throttle.Rule{throttle.Leak(5, time.Second)} }, []string{"limits:", "domain:", "-rules: [{leak: 10/s}]", "+rules: [{leak: 5/s}]"}},
		"key":         {func(l *queue.Limit) { l.Key = []string{"tenant", "keys.domain"} }, []string{"-key: [keys.domain]", "+key: [tenant, keys.domain]"}},
		"jobs":        {func(l *queue.Limit) { l.Types = []string{"mail", "promo_*"} }, []string{"-type: [mail]", "+type: [mail, promo_*]"}},
		"counts":      {func(l *queue.Limit) { l.Counts = "jobs" }, []string{"+counts: jobs"}},
		"missing":     {func(l *queue.Limit) { l.Refuse = true }, []string{"+missing: refuse"}},
		"detailed":    {func(l *queue.Limit) { l.Detailed = true }, []string{"+detailed: true"}},
		"concurrency": {func(l *queue.Limit) { l.Concurrency.Jobs = 7 }, []string{"+concurrency: 7"}},
		"capacity":    {func(l *queue.Limit) { l.Capacity = 1000 }, []string{"+capacity: 1000"}},
		"each changed": {func(l *queue.Limit) {
			l.Each["gmail.com"] = queue.Limit{Rules: []throttle.Rule{throttle.Leak(50, time.Second)}}
		}, []string{"each:", "gmail.com:", "-rules: [{leak: 100/s}]", "+rules: [{leak: 50/s}]"}},
		"each added":   {func(l *queue.Limit) { l.Each["x.example"] = queue.Limit{Capacity: 9} }, []string{"each:", "+x.example:", "+capacity: 9"}},
		"each removed": {func(l *queue.Limit) { delete(l.Each, "*.free") }, []string{`-'*.free': unlimited`}},
	} {
		changes, err := Changes(domain(func(*queue.Limit) {}), domain(c.change))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tells(t, name, changes, c.want, 2)
	}
}

// A limit by name that is new, gone, or has another name is told whole.
func TestLimitsComeAndGo(t *testing.T) {
	none, one := queue.Policies{}, domain(func(*queue.Limit) {})
	renamed := queue.Policies{Limits: map[string]queue.Limit{"host": one.Limits["domain"]}}
	for name, c := range map[string]struct {
		before, after queue.Policies
		want          []string
	}{
		"added":   {none, one, []string{"+domain:", "+rules: [{leak: 10/s}]", "+key: [keys.domain]"}},
		"removed": {one, none, []string{"-domain:", "-rules: [{leak: 10/s}]", "-key: [keys.domain]"}},
		"renamed": {one, renamed, []string{"-domain:", "+host:"}},
	} {
		changes, err := Changes(c.before, c.after)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tells(t, name, changes, c.want, 20)
	}
	if changes, err := Changes(one, domain(func(*queue.Limit) {})); err != nil || len(changes) > 0 {
		t.Errorf("nothing has changed, and %q is told, %v", changes, err)
	}
}

// The history tells changes of limits by name, and of overrides.
func TestHistoryOfLimits(t *testing.T) {
	end := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	override := queue.Override{Limit: "domain", Key: []string{"gmail.com"}, Rules: []throttle.Rule{throttle.Leak(5, time.Second)}, Until: end}
	slower := domain(func(l *queue.Limit) { l.Rules[0] = throttle.Leak(5, time.Second) })
	all, err := History([]queue.PolicyVersion{
		{Version: 3, Policies: slower, Overrides: []queue.Override{override}}, {Version: 2, Policies: slower}, {Version: 1, Policies: domain(func(*queue.Limit) {})},
	}, 2)
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	tells(t, "an override", all[0].Changes, []string{"+overrides:", "+domain gmail.com: leak 5/s until 2026-11-23T08:00:00Z"}, 2)
	tells(t, "other rules", all[1].Changes, []string{"-rules: [{leak: 10/s}]", "+rules: [{leak: 5/s}]"}, 1)
}

// tells fails unless changes hold some lines, and no more than so many that come or go.
func tells(t *testing.T, what string, changes, want []string, most int) {
	t.Helper()
	var got []string
	come, gone := 0, 0
	for _, line := range changes {
		sign, text := strings.TrimSpace(line[:1]), strings.TrimSpace(line[1:])
		got = append(got, sign+text)
		switch sign {
		case "+":
			come++
		case "-":
			gone++
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("%s: %q is not told:\n%s", what, line, strings.Join(changes, "\n"))
		}
	}
	if come > most || gone > most {
		t.Errorf("%s: %d lines come and %d go:\n%s", what, come, gone, strings.Join(changes, "\n"))
	}
}
