package queue

import (
	"bytes"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A class that comes often is warned of a few times; a rare one beside it is not left out, and
// the next warning says how many were.
func TestWarningsAreFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		var f failureLog
		for i := range 1000 {
			f.warn(log, "failed", "the provider is down", "id", i)
			if i == 500 {
				f.warn(log, "failed", "out of paper")
			}
		}
		if n := strings.Count(out.String(), "the provider is down"); n != warnings {
			t.Errorf("%d warnings, want %d", n, warnings)
		}
		if !strings.Contains(out.String(), "out of paper") {
			t.Error("the rare one is left out")
		}
		time.Sleep(warnWithin)
		out.Reset()
		f.warn(log, "failed", "the provider is down")
		if !strings.Contains(out.String(), "more_of_the_kind=997") {
			t.Errorf("%s", &out)
		}
		for range 10 * mostClasses {
			f.warn(log, "failed", strings.Repeat("x", len(f.classes)+1))
		}
		if len(f.classes) > mostClasses {
			t.Errorf("%d classes are remembered", len(f.classes))
		}
	})
}

// While a provider is down, each job of each user asks for a pause: of that is warned a few
// times, too.
func TestWarningsOfPausesAreFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		a := &attempts{log: slog.New(slog.NewTextHandler(&out, nil))}
		for i := range 1000 {
			info := &Info{ID: strconv.Itoa(i), Tenant: "school"}
			if i == 500 {
				info.Tenant = "other"
				a.outcome(Pause{Scope: ScopeTenant, For: time.Minute, Cause: errors.New("429 Too Many Requests")}, info, nil, clock)
				continue
			}
			time.Sleep(time.Millisecond)
			a.outcome(Pause{Until: time.Now().Add(time.Second), Cause: errors.New("the provider is down")}, info, nil, clock)
		}
		if n := strings.Count(out.String(), "the provider is down"); n != warnings {
			t.Errorf("%d warnings, want %d", n, warnings)
		}
		if !strings.Contains(out.String(), "tenant=other") {
			t.Error("the rare one is left out")
		}
	})
}

func clock() int64 { return time.Now().UnixMicro() }
