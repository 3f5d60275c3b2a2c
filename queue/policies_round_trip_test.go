package queue

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/throttle"
)

// random makes policies of every shape.
type random struct{ *rand.Rand }

func (r random) pick(from ...string) string { return from[r.IntN(len(from))] }

func (r random) rules() (all []throttle.Rule) {
	for range r.IntN(3) {
		n, period := 1+r.IntN(1000), time.Duration(1+r.IntN(1e9))*time.Microsecond
		rule := []throttle.Rule{
			throttle.Leak(n, period), throttle.Window(n, period), throttle.Spacing(period), throttle.FixedWindow(n, period),
			throttle.TokenBucket(n, period, 1+r.IntN(9)), throttle.SlidingCounter(n, period+time.Second, 2+r.IntN(58)),
			throttle.Warmup("2026-12-01", fmt.Sprintf("1:%d/%s,%d:%d/1h", n, period, 2+r.IntN(9), n), r.pick("", "Europe/Paris")),
		}[r.IntN(7)]
		if r.IntN(3) == 0 {
			rule = rule.OrDrop()
		}
		if r.IntN(3) == 0 {
			rule = rule.AsShadow()
		}
		if r.IntN(3) == 0 {
			rule = rule.CountingDropped()
		}
		all = append(all, rule)
	}
	return all
}

// name returns the name of a tenant, of bytes that have a meaning somewhere.
func (r random) name() string {
	if r.IntN(3) > 0 {
		return r.pick("~", "null", "true", "1", "1e3", "<<", "=", "!!binary", "? x", "- a", "#", "a: b", "é", " a", "a ", "\n", "\x00", "\xff\xfe", "\u2028", "\ufeff", "'", `"`, `\`, "2001-01-01", strings.Repeat("k", 1024))
	}
	bytes := make([]byte, 1+r.IntN(20))
	for i := range bytes {
		bytes[i] = byte(r.IntN(256))
	}
	return string(bytes)
}

func (r random) concurrency() (c Concurrency) {
	switch r.IntN(3) {
	case 0:
		c.Jobs = 1 + r.IntN(1_000_000)
	case 1:
		c.Percent = 1 + r.IntN(100)
	}
	return c
}

func (r random) policies() Policies {
	p := Policies{Queue: r.rules(), Concurrency: r.concurrency(), Policies: make(map[string]Policy), Tenants: make(map[string]string)}
	var names []string
	for range r.IntN(4) {
		name := r.pick("standard", "premium", "null", "true", "1", "0x1", ".", "-", "1.5", "no")
		names = append(names, name)
		p.Policies[name] = Policy{
			Tenant: r.rules(), User: r.rules(), Capacity: r.IntN(2) * r.IntN(1e9), UserCapacity: r.IntN(2) * r.IntN(1e9), DropOldest: r.IntN(2) == 0,
			TenantConcurrency: r.concurrency(), UserConcurrency: r.concurrency(),
			Weight: r.IntN(101), MaxWait: time.Duration(r.IntN(2)) * (time.Millisecond + time.Duration(r.Int64N(1e18))),
		}
	}
	if len(names) == 0 {
		return p
	}
	p.Default = r.pick(append(names, "")...)
	for range r.IntN(5) {
		p.Tenants[r.name()] = r.pick(names...)
	}
	return p
}

// Policies are the same after they were written and read, whatever they hold: a rule that
// gets lost on the way would be a limit that silently does not hold.
func TestPoliciesRoundTripWhateverTheyHold(t *testing.T) {
	t.Parallel()
	client := redistest.Mini(t)
	inspector, err := NewInspector(client, "q")
	if err != nil {
		t.Fatal(err)
	}
	seed := sample.SeedOf(t)
	r := random{rand.New(rand.NewPCG(seed, 1))}
	for i := range 2000 {
		want := r.policies()
		data, err := yaml.Marshal(want)
		if err != nil {
			t.Fatalf("seed %d, %d: %v", seed, i, err)
		}
		got, err := ParsePolicies("policies.yaml", data)
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(throttle.Rule{})); err != nil || diff != "" {
			t.Fatalf("seed %d, %d: %v (-want +got):\n%s\n%s", seed, i, err, diff, data)
		}
		if i%20 > 0 {
			continue
		}
		if err := inspector.SetPolicies(t.Context(), want); err != nil {
			t.Fatalf("seed %d, %d: %v", seed, i, err)
		}
		set, err := inspector.Policies(t.Context())
		if diff := cmp.Diff(want, set.Policies, cmpopts.EquateComparable(throttle.Rule{})); err != nil || diff != "" {
			t.Fatalf("seed %d, %d, through Redis: %v (-want +got):\n%s", seed, i, err, diff)
		}
	}
}

// What is read, changed and set again keeps the limits of the others.
func TestPoliciesAreReadChangedAndSet(t *testing.T) {
	t.Parallel()
	inspector, err := NewInspector(redistest.Mini(t), "q")
	if err != nil {
		t.Fatal(err)
	}
	leak := []throttle.Rule{throttle.Leak(50, time.Second)}
	if err := inspector.SetPolicies(t.Context(), Policies{Policies: map[string]Policy{"big": {Tenant: leak}}}); err != nil {
		t.Fatal(err)
	}
	read, err := inspector.Policies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := read.Policies
	p.Default = "big"
	if err := inspector.SetPolicies(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	e, err := inspector.Explain(t.Context(), "anybody", "u")
	if err != nil || len(e.Rules) != 1 || e.Rules[0].Rule != "leak 50/s" || e.Policy != "big" {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestPoliciesThatCannotBeReadAreRefused(t *testing.T) {
	t.Parallel()
	inspector, err := NewInspector(redistest.Mini(t), "q")
	if err != nil {
		t.Fatal(err)
	}
	standard := map[string]Policy{"standard": {}}
	for name, p := range map[string]Policies{
		"no tenant":   {Policies: standard, Tenants: map[string]string{"": "standard"}},
		"long tenant": {Policies: standard, Tenants: map[string]string{strings.Repeat("t", 1025): "standard"}},
		"no rule":     {Queue: make([]throttle.Rule, 1)},
	} {
		if err := inspector.SetPolicies(t.Context(), p); !errors.Is(err, ErrInvalidPolicies) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := inspector.Policies(t.Context()); err != nil || got.Version != 0 {
		t.Errorf("set all the same: %+v, %v", got, err)
	}
}

func TestBase64OfATenant(t *testing.T) {
	t.Parallel()
	_, err := ParsePolicies("f.yaml", []byte("policies: {p: {}}\ntenants:\n  !!binary \"#\": p\n"))
	if err == nil || !strings.HasPrefix(err.Error(), `f.yaml:3: tenants: "#" is not base64`) {
		t.Errorf("%v", err)
	}
}
