// Package throttle is a rate limiter that answers when, not whether.
//
// A [Rule] is one limit: at most 50 a second evenly ([Leak]), at most 10 in any
// minute ([Window]), never two within 3 seconds ([Spacing]). Whatever its algorithm,
// a rule is one function: the earliest instant, its slot, at which the next action may
// start. Everything else follows from that instant:
//
//   - it has come: the action is admitted,
//   - it lies ahead: the action is deferred until then,
//   - a rule made with [Rule.OrDrop] would have to defer: the action is dropped.
//
// A limiter that only says whether makes its callers ask again and again. One that says
// when lets them wait, once, for exactly as long as it takes.
//
// A [Subject] is whoever rules count for: a user, a tenant, an API key. One decision
// takes any number of subjects with any number of rules each and is all or nothing: the
// slot is the first instant that suits every rule, and either all of them are spent at
// it or none is.
//
//	limiter := throttle.New(throttle.NewRedisStore(client, "rl"))
//	d, err := limiter.Allow(ctx, 1,
//		throttle.Subject{Key: "school-7", Rules: []throttle.Rule{throttle.Leak(50, time.Second)}},
//		throttle.Subject{Key: "school-7/teacher-42", Rules: []throttle.Rule{
//			throttle.Window(10, time.Minute), throttle.Spacing(3 * time.Second)}},
//	)
//
// The [Decision] is a value; an error means trouble (Redis is gone, a rule is
// malformed, a cost can never be met). The zero Decision is undecided and lets nothing
// start. Waiting exactly Decision.RetryAfter is enough, if nobody else takes the slot
// first; [Limiter.Reserve] takes it, and [Limiter.Wait] takes it and waits.
//
// Rules have options: [Rule.OrDrop] drops what the rule would defer, [Rule.AsShadow]
// tries a limit out on live traffic, [Rule.CountingDropped] keeps a flood blocked until
// it ends. docs/rules.md compares the rules and says when to choose which. A rule has a
// text form ([ParseRule]: "window 10/1m over=drop"), for flags and JSON.
//
// State is kept in Redis ([NewRedisStore]) or in the process ([NewMemoryStore]). Both
// answer alike, decision by decision.
//
// # Time
//
// There is one clock, Redis's, read once in the script that decides. The clocks of the
// callers play no part. If Redis's clock steps back, subjects wait until it has caught up
// with their newest slot, so a step mints nothing. (A token bucket that still has tokens
// does not wait: it admits at an instant before its newest slot, and spends as ever.) All
// times are integer microseconds.
//
// # Proof
//
// [Verify] takes a log of starts and finds every place where a rule was broken. It is
// written from the definitions and shares no code with the scripts.
package throttle
