package limits

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock/waterclock/internal/policyfile"
	"github.com/waterclock/waterclock/throttle"
)

const file = `
queue: {rules: [{leak: 1000/s}]}
default: standard
policies:
  standard: {tenant: {rules: [{leak: 50/s}]}, user: {rules: [{window: 10/1m}]}}
  premium: {tenant: {rules: [{leak: 500/s}]}}
tenants: {big: premium}
limits:
  account: {rules: [{leak: 1/s}]}
  domain:
    key: keys.domain
    rules: [{leak: 10/s}]
    each:
      gmail.com: {rules: [{leak: 100/s}]}
      "*.com": {rules: [{leak: 20/s}]}
      "*.mail.com": {rules: [{leak: 30/s}]}
      "*.mail.*": {rules: [{leak: 40/s}]}
      intern: unlimited
  marketing: {jobs: {type: [marketing, promo_*_x]}, key: [tenant, user], counts: jobs, rules: [{window: 5/24h}]}
  pair: {jobs: {type: pair}, key: [tenant, keys.domain], rules: [{leak: 1/s}], each: {"big,*": unlimited, "big,gmail.com": {rules: [{leak: 2/s}]}}}
  strict: {jobs: {type: strict}, key: [keys.route], missing: refuse, rules: [{leak: 1/s}]}
  tokens: {counts: tokens, key: [tenant], rules: [{window: 1000/1m}]}
  words: {jobs: {type: strict}, counts: words, missing: refuse, rules: [{window: 1000/1m}]}
`

func compile(t *testing.T, text string) *Set[[]throttle.Rule] {
	t.Helper()
	f, err := policyfile.Parse("limits.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return Compile(f, func(b policyfile.Bounds) []throttle.Rule { return b.Rules })
}

func TestOf(t *testing.T) {
	set := compile(t, file)
	const three = "q leak 1000/s x1|t:a leak 50/s x1|u:a:b window 10/1m x1|l:account leak 1/s x1"
	domain := func(name string) Action {
		return Action{Tenant: "a", User: "b", Keys: map[string]string{"domain": name}}
	}
	for want, action := range map[string]Action{
		three:                                    {Tenant: "a", User: "b"},
		"q leak 1000/s x1|l:account leak 1/s x1": {User: "b"},
		"q leak 1000/s x3|t:big leak 500/s x3|u:big:b  x3|l:account leak 1/s x3": {Tenant: "big", User: "b", Cost: 3},
		three + "|l:domain:x.org leak 10/s x1":                                   domain("x.org"),
		three + "|l:domain:gmail.com leak 100/s x1":                              domain("gmail.com"),
		three + "|l:domain:x.com leak 20/s x1":                                   domain("x.com"),
		three + "|l:domain:x.mail.com leak 30/s x1":                              domain("x.mail.com"),
		three + "|l:domain:x.mail.org leak 40/s x1":                              domain("x.mail.org"),
		three + "|l:domain:%25%3A%20 leak 10/s x1":                               domain("%: "),
		three + " ": domain("intern"),
		three + "|l:marketing:a:b window 5/24h x1":  {Tenant: "a", User: "b", Type: "marketing"},
		three + "|l:marketing:a:b window 5/24h x1 ": {Tenant: "a", User: "b", Type: "promo_1_x"},
		three + "  ": {Tenant: "a", User: "b", Type: "promo_x"},
		three + "|l:tokens:a window 1000/1m x700": {Tenant: "a", User: "b", Costs: map[string]int{"tokens": 700}},
		three + "   ": {Tenant: "a", User: "b", Costs: map[string]int{"tokens": 0, "bytes": 7}},
		three + "|l:strict:r leak 1/s x1|l:words window 1000/1m x5":                                 {Tenant: "a", User: "b", Type: "strict", Keys: map[string]string{"route": "r"}, Costs: map[string]int{"words": 5}},
		"q leak 1000/s x2|l:account leak 1/s x2|l:domain:gmail.com leak 100/s x2":                   {Cost: 2, Keys: map[string]string{"domain": "gmail.com"}},
		"q leak 1000/s x1|t:big leak 500/s x1|l:account leak 1/s x1|l:domain:intern.x leak 10/s x1": {Tenant: "big", Type: "pair", Keys: map[string]string{"domain": "intern.x"}},
		"q leak 1000/s x1|t:big leak 500/s x1|l:account leak 1/s x1|l:domain:gmail.com leak 100/s x1|l:pair:big:gmail.com leak 2/s x1": {
			Tenant: "big", Type: "pair", Keys: map[string]string{"domain": "gmail.com"},
		},
	} {
		uses, err := set.Of(action)
		if err != nil {
			t.Errorf("%+v: %v", action, err)
			continue
		}
		var got []string
		for _, u := range uses {
			rules := ""
			for _, r := range u.Bounds {
				rules += r.String()
			}
			got = append(got, fmt.Sprintf("%s %s x%d", u.Scope(), rules, u.Cost))
		}
		if diff := cmp.Diff(strings.TrimRight(want, " "), strings.Join(got, "|")); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", action, diff)
		}
	}
}

func TestMissing(t *testing.T) {
	set := compile(t, file)
	for want, action := range map[string]Action{
		"limit strict needs keys.route, and it is missing": {Type: "strict", Costs: map[string]int{"words": 1}},
		"limit words needs costs.words, and it is missing": {Type: "strict", Keys: map[string]string{"route": "r"}},
	} {
		_, err := set.Of(action)
		if missing := (*Missing)(nil); !errors.As(err, &missing) || err.Error() != want {
			t.Errorf("%+v: %v, want %s", action, err, want)
		}
	}
}

func TestTooManyLimits(t *testing.T) {
	text := "limits:\n"
	for i := range MostNamed + 1 {
		text += fmt.Sprintf("  l%d: {jobs: {type: [few*, t%d]}, rules: [{leak: 1/s}]}\n", i, i)
	}
	set := compile(t, text)
	if uses, err := set.Of(Action{Type: "t3"}); err != nil || len(uses) != 2 {
		t.Errorf("%v, %v", uses, err)
	}
	_, err := set.Of(Action{Type: "few"})
	if want := "9 limits by name are about it, from l0 to l8; want 8 at most"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// Whatever the pattern and the text, they match as a regular expression says.
func TestMatches(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	word := func(letters string) (text string) {
		for range random.IntN(8) {
			text += string(letters[random.IntN(len(letters))])
		}
		return text
	}
	matched := 0
	for range 20_000 {
		pattern, text := word("ab*."), word("ab.")
		want := regexp.MustCompile(`(?s)^` + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `.*`) + `$`).MatchString(text)
		if got := matches(pattern, text); got != want {
			t.Fatalf("%q matches %q: %v, want %v", pattern, text, got, want)
		}
		if want {
			matched++
		}
	}
	if matched < 500 {
		t.Errorf("only %d matched", matched)
	}
}

// A comma in a value is no comma between values: who may choose one of them does not choose whose bounds count.
func TestACommaInAValueSeparatesNothing(t *testing.T) {
	set := compile(t, `
limits:
  pair:
    key: [tenant, keys.route]
    rules: [{leak: 1/s}]
    each:
      "vip,*": unlimited
      "*,free": unlimited
      "a,b,c": {rules: [{leak: 3/s}]}
      "a%2Cb,c": {rules: [{leak: 4/s}]}
  route: {key: keys.route, rules: [{leak: 1/s}], each: {"a,b": {rules: [{leak: 5/s}]}}}
`)
	for _, c := range []struct{ tenant, route, pair, single string }{
		{"vip", "x", "", "leak 1/s"},
		{"vip,x", "x", "leak 1/s", "leak 1/s"},
		{"a", "free", "", "leak 1/s"},
		{"a", "b,free", "leak 1/s", "leak 1/s"},
		{"a", "b,c", "leak 1/s", "leak 1/s"},
		{"a,b", "c", "leak 4/s", "leak 1/s"},
		{"a%2Cb", "c", "leak 1/s", "leak 1/s"},
		{"a", "a,b", "leak 1/s", "leak 5/s"},
	} {
		want := map[string]string{"route": c.single}
		if c.pair != "" {
			want["pair"] = c.pair
		}
		uses, err := set.Named(Action{Tenant: c.tenant, Keys: map[string]string{"route": c.route}})
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]string)
		for _, u := range uses {
			got[u.Limit] = u.Bounds[0].String()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q, %q (-want +got):\n%s", c.tenant, c.route, diff)
		}
	}
}

// Two limits, or two values of one, never count together.
func TestScopesNeverMeet(t *testing.T) {
	seen := make(map[string]string)
	for _, limit := range []string{Queue, Tenant, User, "a", "t", "q", "l"} {
		for _, values := range [][]string{nil, {""}, {"a"}, {"a", "b"}, {"a:b"}, {"a%3Ab"}, {"a b"}, {"a%20b"}, {"a", ""}, {"", "a"}} {
			if limit == Queue && values != nil || limit == Tenant && len(values) != 1 || limit == User && len(values) != 2 {
				continue
			}
			scope, name := Use[int]{Limit: limit, Values: values}.Scope(), fmt.Sprintf("%q %q", limit, values)
			if other, twice := seen[scope]; twice {
				t.Errorf("%s and %s are both %s", name, other, scope)
			}
			seen[scope] = name
		}
	}
}

// From a label it can be said which limits there are, and for whom they count, without the job.
func TestLabels(t *testing.T) {
	set := compile(t, file)
	for want, action := range map[string]Action{
		"account": {Tenant: "a", User: "b"},
		"account&domain=%25%3A%20%7C%26%3D%2C&marketing": {Tenant: "a", User: "b", Type: "marketing", Keys: map[string]string{"domain": "%: |&=,"}},
		"account&domain=x.org&pair=x.org":                {Tenant: "a", User: "b", Type: "pair", Keys: map[string]string{"domain": "x.org"}},
		"account&strict=r&tokens&words":                  {Tenant: "a", User: "b", Type: "strict", Keys: map[string]string{"route": "r"}, Costs: map[string]int{"tokens": 7, "words": 1}},
	} {
		uses, err := set.Named(action)
		if err != nil {
			t.Fatal(err)
		}
		label := labelOf(uses, false)
		if label != want || strings.ContainsAny(label, " :|") {
			t.Errorf("%+v has the label %q, want %q", action, label, want)
		}
		again := set.Labelled(action.Tenant, action.User, label)
		if counted := labelOf(uses, true); cmp.Diff(again, set.Labelled(action.Tenant, action.User, counted), cmp.AllowUnexported(throttle.Rule{})) != "" {
			t.Errorf("%q says something else than %q", counted, label)
		}
		if len(again) != len(uses) {
			t.Fatalf("%q: %d limits, want %d", label, len(again), len(uses))
		}
		for i, u := range again {
			if u.Scope() != uses[i].Scope() || cmp.Diff(u.Bounds, uses[i].Bounds, cmp.AllowUnexported(throttle.Rule{})) != "" {
				t.Errorf("%q: %s, want %s", label, u.Scope(), uses[i].Scope())
			}
			if bounds, there := set.InForce(u.Scope()); !there || cmp.Diff(u.Bounds, bounds, cmp.AllowUnexported(throttle.Rule{})) != "" {
				t.Errorf("%s is in force: %v %v", u.Scope(), there, bounds)
			}
		}
	}
	for label, costs := range map[string][]int{
		"account&marketing&tokens": {0, 1, -1}, "domain=intern": nil, "gone=x&account": {0}, "domain": nil, "domain=a,b": nil, "pair": nil, "": nil,
	} {
		var got []int
		for _, u := range set.Labelled("a", "b", label) {
			got = append(got, u.Cost)
		}
		if diff := cmp.Diff(costs, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", label, diff)
		}
	}
	for _, scope := range []string{"q", "t:a", "u:a:b", "l:gone", "l:domain", "l:domain:a:b", "l:domain:intern"} {
		if _, there := set.InForce(scope); there {
			t.Errorf("%s is in force", scope)
		}
	}
}

// labelOf returns the label of the limits that a job is subject to.
func labelOf(uses []Use[[]throttle.Rule], whole bool) string {
	var label []byte
	for _, u := range uses {
		label = u.AppendLabel(label, whole)
	}
	return string(label)
}
