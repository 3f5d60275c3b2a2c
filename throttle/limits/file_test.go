package limits_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/throttle"
	"github.com/waterclock/waterclock/throttle/limits"
)

// The limits of a file are those of its last valid text.
func TestOpenFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "limits.yaml")
		write := func(text string) {
			if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(name+".new", name); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		limiter := throttle.New(throttle.NewMemoryStore())
		if _, err := limits.OpenFile(name, limiter); !errors.Is(err, limits.ErrInvalidFile) || !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		const text = "limits: {all: {counts: jobs, rules: [{window: %d/1h}]}}"
		write(fmt.Sprintf(text, 1))
		file, err := limits.OpenFile(name, limiter)
		if err != nil {
			t.Fatal(err)
		}
		var log redistest.Buffer
		file.Logger = slog.New(slog.NewTextHandler(&log, nil))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- file.Run(ctx) }()
		allowed := func(want bool) {
			t.Helper()
			if d, err := file.Set().Allow(ctx, limits.Fields{}); err != nil || (d.Outcome == throttle.Admitted) != want {
				t.Errorf("%+v, %v", d, err)
			}
		}
		allowed(true)
		allowed(false)
		write("limits: {all: {rule: []}}")
		allowed(false)
		if !strings.Contains(log.String(), name+":1: limits.all.rule: unknown key") {
			t.Errorf("logged %s", log.String())
		}
		write(fmt.Sprintf(text, 2)) // what was counted counts
		allowed(true)
		allowed(false)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// AllowMany decides as Allow does, one after the other, and names the limit that binds each; if one is invalid, nothing is decided.
func TestAllowMany(t *testing.T) {
	const text = `
limits:
  domain: {key: keys.domain, counts: jobs, rules: [{window: 2/1h}]}
  tenant_tokens: {counts: tokens, key: [tenant], missing: refuse, rules: [{window: 200/1h}]}
`
	onStores(t, func(t *testing.T, store throttle.Store) {
		together, alone := parse(t, text, store), parse(t, text, throttle.NewMemoryStore())
		var actions []limits.Fields
		for i := range 40 {
			actions = append(actions, limits.Fields{
				Tenant: fmt.Sprint("t", i%3), Keys: map[string]string{"domain": fmt.Sprint("d", i%13)}, Costs: map[string]int{"tokens": 10 + i},
			})
		}
		var invalid *limits.ActionError
		bad := append(append([]limits.Fields{}, actions...), limits.Fields{Tenant: "t1"})
		if _, err := together.AllowMany(t.Context(), bad...); !errors.As(err, &invalid) || invalid.Action != 40 || !errors.Is(err, limits.ErrInvalidFields) {
			t.Errorf("%v", err)
		}
		got, err := together.AllowMany(t.Context(), actions...)
		if err != nil || len(got) != len(actions) {
			t.Fatal(len(got), err)
		}
		outcomes := make(map[string]int)
		for i, a := range actions {
			want, err := alone.Allow(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			if got[i].Outcome != want.Outcome || got[i].Limit != want.Limit || fmt.Sprint(got[i].Key) != fmt.Sprint(want.Key) || got[i].Remaining != want.Remaining {
				t.Errorf("%d: %+v, want %+v", i, got[i], want)
			}
			outcomes[got[i].Outcome.String()+" "+got[i].Limit]++
		}
		if len(outcomes) < 3 {
			t.Errorf("%v", outcomes)
		}
	})
}
