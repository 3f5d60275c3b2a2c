package store

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A between lets something happen behind the first command of the next pipeline.
type between struct{ do func() }

func (b *between) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *between) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (b *between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		do := b.do
		if b.do = nil; do == nil || len(cmds) < 2 {
			return next(ctx, cmds)
		}
		if err := next(ctx, cmds[:1]); err != nil && err != redis.Nil {
			return err
		}
		do()
		return next(ctx, cmds[1:])
	}
}

// A pipeline is not atomic: a digest that is full, and so closed, between its commands is found.
func TestADigestIsFoundThatIsClosedMeanwhile(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		member := func(payload string) OfferJob {
			e := envelope.Envelope{Cost: 1, MaxAttempts: 1, Priority: envelope.Normal, Type: "x", DigestKey: "k", Payload: payload}
			j := jobOf(0, "u", string(e.Body()))
			j.Digest, j.Costs, j.Terms = "k", e.Costing(), DigestTerms{Max: 2}
			return j
		}
		first := d.offerAll("a", member("1"))[0]
		name := envelope.DigestName{Stamp: first.Digest, Place: envelope.DigestPlace(Lane{Tenant: "t0", User: "u", Priority: envelope.Normal}, "k")}
		closes := &between{do: func() { d.offerAll("b", member("2")) }}
		d.client.(interface{ AddHook(redis.Hook) }).AddHook(closes)
		for range 2 {
			jobs, err := d.FoldedJobs(t.Context(), []Folded{{"t0", "u", name.String()}})
			d.must(err)
			if env, err := envelope.Open(jobs[0]); err != nil || len(env.Members) == 0 {
				t.Errorf("%q: %v", jobs[0], err)
			}
		}
	})
}
