package store

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// go-redis sends a command again when its connection breaks, though Redis may have done it. A script that changes
// something relative to what is there must not run twice by that: its caller has a name or a number by which
// it finds out what became of it.
//
//   - run      scripts that may run twice: what they write is the same the second time (beats), or they see that it
//     was done: offers by the name of the batch, acks by the claims, elections by the leader's token
//   - runOnce  changes: their conditions say whether they were made
//   - stream   commits: their numbers say which were done

// runOnce runs a script that must not run twice. After an error without a reply of Redis the outcome is unknown, and
// the caller makes the change anew: its conditions find that it was made.
func (s *Store) runOnce(ctx context.Context, name string, keys []string, args ...any) *redis.Cmd {
	return s.checked(scripts()[name].Run(ctx, once{s.client}, keys, args...))
}

// stream sends a script that must not run twice behind those that this goroutine has sent
// before, on one connection and without waiting for their replies. The returned function
// waits for the reply; it is called once.
//
// Some scripts may run behind later ones: one that Redis does not know yet, one whose slot of a
// cluster moves, and all where the client has no such connections (a Ring). Commits have numbers, so a
// commit that overtakes another one is refused ([OrderError]).
func (s *Store) stream(ctx context.Context, name string, keys []string, args ...any) (wait func() *redis.Cmd) {
	options := redis.DefaultAutoPipelineOptions()
	options.FullDuplex = true
	pipe, err := s.client.AsyncAutoPipelineWithOptions(options)
	if err != nil {
		return func() *redis.Cmd { return s.runOnce(ctx, name, keys, args...) }
	}
	cmd := scriptCmd(ctx, "evalsha", scripts()[name].Hash(), keys, args)
	sent := pipe.Submit(ctx, onceCmd{cmd})
	return func() *redis.Cmd {
		// The command holds the error that this returns.
		_ = sent.Wait()
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			cmd = scripts()[name].Eval(ctx, once{s.client}, keys, args...)
		}
		return s.checked(cmd)
	}
}

// once is a client that sends a script once and no more. [redis.Script] uses it as it would use the client itself: it
// tries the hash of the script, and sends the text where Redis does not know the hash. The first of the two has
// done nothing then.
type once struct{ redis.UniversalClient }

// onceCmd is a command that go-redis does not send again.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

// EvalSha and Eval are what [redis.Script] calls.
func (c once) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return c.send(ctx, "evalsha", sha, keys, args)
}

func (c once) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return c.send(ctx, "eval", script, keys, args)
}

func (c once) send(ctx context.Context, command, script string, keys []string, args []any) *redis.Cmd {
	cmd := scriptCmd(ctx, command, script, keys, args)
	// The command holds the error that this returns.
	_ = c.Process(ctx, onceCmd{cmd})
	return cmd
}

// scriptCmd returns the command that runs a script. Its first key tells a cluster the node.
func scriptCmd(ctx context.Context, command, script string, keys []string, args []any) *redis.Cmd {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, command, script, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	cmd := redis.NewCmd(ctx, append(words, args...)...)
	cmd.SetFirstKeyPos(3)
	return cmd
}
