// Package throttle is a rate limiter that answers when, not whether.
//
// A [Rule] is one limit: at most 50 a second evenly ([Leak]), at most 10 in any minute
// ([Window]), never two within 3 seconds ([Spacing]). Whatever its algorithm, a rule is a
// function: it returns the earliest instant, the slot, at which the next action may start. The
// outcome follows from that instant:
//
//   - it has come: the action is admitted,
//   - it lies ahead: the action is deferred until then,
//   - a rule made with [Rule.OrDrop] would have to defer: the action is dropped.
//
// A limiter that only says whether makes its callers ask again and again. One that says
// when lets them wait, once, for exactly as long as it takes.
//
// A [Subject] is whom rules count for: a user, a tenant, an API key. One decision takes any
// number of subjects with any number of rules each, and is all or nothing: the slot is the first
// instant that every rule allows, and either all rules are spent at the slot or none is.
//
//	limiter := throttle.New(throttle.NewRedisStore(client, "rl"))
//	d, err := limiter.Allow(ctx, 1,
//		throttle.Subject{Key: "school-7", Rules: []throttle.Rule{throttle.Leak(50, time.Second)}},
//		throttle.Subject{Key: "school-7/teacher-42", Rules: []throttle.Rule{
//			throttle.Window(10, time.Minute), throttle.Spacing(3 * time.Second)}},
//	)
//
// The [Decision] is a value. An error means that nothing was decided: Redis cannot be reached, a
// rule is invalid, or a cost can never be admitted. The zero Decision is [Undecided], and the
// action must not start. After exactly RetryAfter the action is admitted, unless another caller
// has taken the slot; [Limiter.Reserve] takes the slot, and [Limiter.Wait] takes it and waits.
//
// Rules have options: [Rule.OrDrop] drops what the rule would defer, [Rule.AsShadow]
// tries a limit out on live traffic, [Rule.CountingDropped] keeps a flood blocked until
// it ends. docs/rules.md compares the rules and says when to choose which. A rule has a
// text form ([ParseRule]: "window 10/1m over=drop"), for flags and JSON.
//
// State is kept in Redis ([NewRedisStore]) or in the process ([NewMemoryStore]). Both stores make
// the same decisions.
//
// # Time
//
// All instants are on Redis's clock, which the deciding script reads once. The clocks of the
// callers have no effect. If Redis's clock steps back, subjects wait until it has caught up with
// their newest slot, so that no subject gains anything. (A token bucket that still has tokens
// does not wait: it admits at an instant before its newest slot, and spends as usual.) All times
// are integer microseconds.
//
// # Proof
//
// [Verify] takes a log of starts and finds every start that broke a rule. It is written from the
// definitions of the rules and shares no code with the scripts.
package throttle
