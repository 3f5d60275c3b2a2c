package throttle_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/throttle"
)

func TestCluster(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	client := redistest.StartCluster(t, 3)
	limiter := throttle.New(throttle.NewRedisStore(client, "rl"))
	rules := []throttle.Rule{throttle.Window(2, time.Hour), throttle.Leak(1, time.Millisecond)}

	t.Run("a subject alone needs no tag", func(t *testing.T) {
		for i := range 50 {
			subject := throttle.Subject{Key: fmt.Sprintf("user-%d", i), Rules: rules}
			d := ask(t, limiter, "reserve", 2, subject)
			if d.Outcome != throttle.Admitted {
				t.Fatalf("%s: %+v", subject.Key, d)
			}
			if i%2 == 0 {
				if err := limiter.Refund(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				if d := ask(t, limiter, "peek", 1, subject); d.Remaining == 0 && d.Rule == "window 2/1h" {
					t.Errorf("%s after a refund: %+v", subject.Key, d)
				}
			}
		}
	})
	t.Run("subjects that share a tag", func(t *testing.T) {
		school := throttle.Subject{Key: "{school-7}", Rules: rules[1:]}
		teacher := throttle.Subject{Key: "{school-7}/teacher-42", Rules: rules[:1]}
		if d := ask(t, limiter, "allow", 2, school, teacher); d.Outcome != throttle.Admitted {
			t.Errorf("first: %+v", d)
		}
		if d := ask(t, limiter, "reserve", 1, school, teacher); d.Rule != "window 2/1h" || d.Subject != teacher.Key {
			t.Errorf("second: %+v, want it deferred by the window", d)
		}
		if err := limiter.Reset(t.Context(), school.Key, teacher.Key); err != nil {
			t.Fatal(err)
		}
		if d := ask(t, limiter, "allow", 2, school, teacher); d.Outcome != throttle.Admitted {
			t.Errorf("after a reset: %+v", d)
		}
	})
	t.Run("subjects in different slots are refused", func(t *testing.T) {
		d, err := limiter.Allow(t.Context(), 1,
			throttle.Subject{Key: "school-7", Rules: rules}, throttle.Subject{Key: "teacher-42", Rules: rules})
		if err == nil || !strings.Contains(err.Error(), "give them one hash tag") || d.Outcome != throttle.Undecided {
			t.Errorf("%+v, %v", d, err)
		}
	})
	t.Run("many, all over the cluster", func(t *testing.T) {
		var requests []throttle.Request
		for i := range 200 {
			requests = append(requests, throttle.Request{Subjects: []throttle.Subject{{Key: fmt.Sprintf("many-%d", i%100), Rules: rules[:1]}}})
		}
		decisions, err := limiter.AllowMany(t.Context(), append(requests, requests[:100]...)...)
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range decisions {
			if want := i < 200; (d.Outcome == throttle.Admitted) != want || d.Subject != fmt.Sprintf("many-%d", i%100) {
				t.Errorf("request %d: %+v, want admitted %v", i, d, want)
			}
		}
	})
}
