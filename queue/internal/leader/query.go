package leader

import (
	"context"

	"github.com/waterclock/waterclock/queue/internal/retry"
)

// A connection may die without a word: what is sent by it vanishes, and the client notices when its time to wait for a
// reply is over, which is many leases. When a network was away, all connections of the pool may be such ones. So
// whatever a term reads is asked again by another connection while no answer comes.
//
// A try that was given up goes on, and may reach Redis after its caller has gone on. So a query must have no effect
// that matters when it comes late, and must use nothing that changes: what it is about is a parameter.

// query asks Redis something, until an answer comes or ctx ends. An answer that is an error is returned: only silence
// lets it ask again.
func query[T any](ctx context.Context, t *term, ask func(ctx context.Context) (T, error)) (T, error) {
	return retry.Persist(ctx, t.w.Patience(), ask)
}

// queryOf asks something about the given.
func queryOf[A, T any](ctx context.Context, t *term, of A, ask func(context.Context, A) (T, error)) (T, error) {
	return query(ctx, t, func(ctx context.Context) (T, error) { return ask(ctx, of) })
}

// queryBoth asks two things about the given: often what is there from a place on, and the next place.
func queryBoth[A, T, U any](ctx context.Context, t *term, of A, ask func(context.Context, A) (T, U, error)) (T, U, error) {
	type both struct {
		first  T
		second U
	}
	answer, err := query(ctx, t, func(ctx context.Context) (b both, err error) {
		b.first, b.second, err = ask(ctx, of)
		return b, err
	})
	return answer.first, answer.second, err
}
