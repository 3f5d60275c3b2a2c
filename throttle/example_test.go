package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/throttle"
)

// teacher gets at most 2 messages in any minute, and never two within 3 seconds.
func teacher() throttle.Subject {
	return throttle.Subject{Key: "teacher-42", Rules: []throttle.Rule{
		throttle.Window(2, time.Minute), throttle.Spacing(3 * time.Second),
	}}
}

// show prints what a decision says, its times rounded for the page.
func show(d throttle.Decision, err error) {
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s, in %v, because of %s\n", d.Outcome, d.RetryAfter.Round(time.Second), d.Rule)
}

func ExampleNewRedisStore() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer client.Close()
	limiter := throttle.New(throttle.NewRedisStore(client, "push"))
	d, err := limiter.Allow(context.Background(), 1, teacher())
	if err != nil {
		return // Redis is gone: whether to go on without a limit is yours to say
	}
	if d.Outcome == throttle.Deferred {
		time.Sleep(d.RetryAfter) // exactly enough
	}
}

func ExampleLimiter_Allow() {
	limiter := throttle.New(throttle.NewMemoryStore())
	show(limiter.Allow(context.Background(), 1, teacher()))
	show(limiter.Allow(context.Background(), 1, teacher()))
	// Output:
	// admitted, in 0s, because of spacing 3s
	// deferred, in 3s, because of spacing 3s
}

func ExampleLimiter_Reserve() {
	limiter := throttle.New(throttle.NewMemoryStore())
	for range 4 {
		show(limiter.Reserve(context.Background(), 1, teacher()))
	}
	// Output:
	// admitted, in 0s, because of spacing 3s
	// deferred, in 3s, because of spacing 3s
	// deferred, in 1m0s, because of window 2/1m
	// deferred, in 1m3s, because of window 2/1m
}

func ExampleLimiter_Peek() {
	limiter := throttle.New(throttle.NewMemoryStore())
	show(limiter.Peek(context.Background(), 1, teacher()))
	show(limiter.Peek(context.Background(), 1, teacher()))
	// Output:
	// admitted, in 0s, because of spacing 3s
	// admitted, in 0s, because of spacing 3s
}

func ExampleLimiter_Refund() {
	limiter := throttle.New(throttle.NewMemoryStore())
	d, _ := limiter.Allow(context.Background(), 1, teacher())
	show(limiter.Peek(context.Background(), 1, teacher()))
	_ = limiter.Refund(context.Background(), d) // it was not sent after all
	show(limiter.Peek(context.Background(), 1, teacher()))
	// Output:
	// deferred, in 3s, because of spacing 3s
	// admitted, in 0s, because of spacing 3s
}

func ExampleLimiter_Reset() {
	limiter := throttle.New(throttle.NewMemoryStore())
	show(limiter.Allow(context.Background(), 1, teacher()))
	_ = limiter.Reset(context.Background(), "teacher-42")
	show(limiter.Allow(context.Background(), 1, teacher()))
	// Output:
	// admitted, in 0s, because of spacing 3s
	// admitted, in 0s, because of spacing 3s
}

func ExampleLimiter_AllowMany() {
	limiter := throttle.New(throttle.NewMemoryStore())
	quota := []throttle.Rule{throttle.TokenBucket(10, time.Minute, 5)}
	decisions, _ := limiter.AllowMany(context.Background(),
		throttle.Request{Cost: 3, Subjects: []throttle.Subject{{Key: "school-7", Rules: quota}}},
		throttle.Request{Cost: 3, Subjects: []throttle.Subject{{Key: "school-7", Rules: quota}}},
		throttle.Request{Cost: 3, Subjects: []throttle.Subject{{Key: "school-8", Rules: quota}}},
	)
	for _, d := range decisions {
		fmt.Println(d.Subject, d.Outcome, d.Remaining, "of", d.Limit)
	}
	// Output:
	// school-7 admitted 2 of 5
	// school-7 deferred 2 of 5
	// school-8 admitted 2 of 5
}

// A language model's provider limits requests and tokens. One decision takes one of the first, and as many of the
// second as the prompt has: of both or of none.
func ExampleSubject_cost() {
	limiter := throttle.New(throttle.NewMemoryStore())
	ask := func(tokens int) {
		show(limiter.Allow(context.Background(), 1,
			throttle.Subject{Key: "requests", Rules: []throttle.Rule{throttle.Window(3, time.Minute)}},
			throttle.Subject{Key: "tokens", Rules: []throttle.Rule{throttle.Window(1000, time.Minute)}, Cost: tokens},
		))
	}
	ask(700)
	ask(400) // too many tokens: no request is spent
	ask(200)
	ask(100)
	ask(1)
	// Output:
	// admitted, in 0s, because of window 3/1m
	// deferred, in 1m0s, because of window 1000/1m
	// admitted, in 0s, because of window 3/1m
	// admitted, in 0s, because of window 3/1m
	// deferred, in 1m0s, because of window 3/1m
}

func ExampleVerify() {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	log := []throttle.Event{
		{Subject: "teacher-42", At: noon},
		{Subject: "teacher-42", At: noon.Add(2 * time.Second)},
	}
	for _, violation := range throttle.Verify(log, []throttle.Rule{throttle.Spacing(3 * time.Second)}) {
		fmt.Println(violation)
	}
	// Output:
	// teacher-42: spacing 3s broken at 2026-01-01T12:00:02Z: 2s after the one before
}

func ExampleRule_OrDrop() {
	limiter := throttle.New(throttle.NewMemoryStore())
	daily := throttle.Subject{Key: "teacher-42", Rules: []throttle.Rule{throttle.Window(1, 24*time.Hour).OrDrop()}}
	for range 2 {
		d, _ := limiter.Allow(context.Background(), 1, daily)
		fmt.Println(d.Outcome)
	}
	// Output:
	// admitted
	// dropped
}

func ExampleRule_AsShadow() {
	limiter := throttle.New(throttle.NewMemoryStore())
	trial := throttle.Subject{Key: "teacher-42", Rules: []throttle.Rule{throttle.Window(1, time.Minute).AsShadow()}}
	for range 2 {
		d, _ := limiter.Allow(context.Background(), 1, trial)
		fmt.Printf("%s, objection: %q\n", d.Outcome, d.Shadow)
	}
	// Output:
	// admitted, objection: ""
	// admitted, objection: "window 1/1m"
}

// A deadline that is nearer than the slot is refused at once.
func ExampleLimiter_Wait() {
	limiter := throttle.New(throttle.NewMemoryStore())
	every := throttle.Subject{Key: "api", Rules: []throttle.Rule{throttle.Spacing(20 * time.Millisecond)}}
	for range 2 {
		fmt.Println(limiter.Wait(context.Background(), 1, every))
	}
	hourly := throttle.Subject{Key: "report", Rules: []throttle.Rule{throttle.Spacing(time.Hour)}}
	hurried, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 2 {
		fmt.Println(errors.Is(limiter.Wait(hurried, 1, hourly), throttle.ErrTooLate))
	}
	// Output:
	// <nil>
	// <nil>
	// false
	// true
}

func ExampleParseRule() {
	rule, err := throttle.ParseRule("window 50/24h over=drop")
	fmt.Println(rule, rule.Limit(), rule.Period(), rule.Drops(), err)
	_, err = throttle.ParseRule("window fifty/24h")
	fmt.Println(err)
	// Output:
	// window 50/24h 50 24h0m0s true <nil>
	// throttle: invalid rule "window fifty/24h": window "fifty/24h": want COUNT/PERIOD such as 50/s or 10/1m (a day is 24h)
}
