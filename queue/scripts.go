package queue

import (
	"context"
	"embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/throttle"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// scripts are the scripts of one queue, ready to run. Each is preceded by the rules, the
// envelopes and the lanes; those that deal with claims, by the claims too; pull by more.
type scripts struct {
	client redis.UniversalClient
	prefix string

	offer, policies, cancel, purge, revive, explain *redis.Script
	pull, ack, fail, admit, release, renew, pause   *redis.Script
	refund                                          *redis.Script
}

func newScripts(client redis.UniversalClient, queue string) *scripts {
	lanes := source("envelopes") + source("lanes")
	claims := lanes + source("claims")
	return &scripts{
		client:   client,
		prefix:   prefix(queue),
		offer:    throttle.NewScript(lanes + source("offer")),
		policies: throttle.NewScript(lanes + source("policies")),
		cancel:   throttle.NewScript(lanes + source("cancel")),
		purge:    throttle.NewScript(lanes + source("purge")),
		revive:   throttle.NewScript(lanes + source("revive")),
		explain:  throttle.NewScript(lanes + source("explain")),
		pause:    throttle.NewScript(claims + source("pause")),
		pull:     throttle.NewScript(claims + source("upkeep") + source("lines") + source("pull")),
		ack:      throttle.NewScript(claims + source("ack")),
		fail:     throttle.NewScript(claims + source("fail")),
		admit:    throttle.NewScript(claims + source("admit")),
		release:  throttle.NewScript(claims + source("release")),
		renew:    throttle.NewScript(claims + source("renew")),
		refund:   throttle.NewScript(claims + source("refund")),
	}
}

// source returns a script file. It is part of the program: a missing one is a bug.
func source(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// run runs a script on the queue and returns its reply.
func (s *scripts) run(ctx context.Context, script *redis.Script, args ...any) *redis.Cmd {
	return script.Run(ctx, s.client, []string{s.prefix}, args...)
}

// runOnce is run for a script that must know one sending of it from the next: the client
// does not send it again by itself when the reply is late or lost, since the first one
// may still arrive, later.
func (s *scripts) runOnce(ctx context.Context, script *redis.Script, args ...any) *redis.Cmd {
	return script.Run(ctx, once{s.client}, []string{s.prefix}, args...)
}

// once is a client that sends a script once and no more.
type once struct{ redis.UniversalClient }

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
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, command, script, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	cmd := redis.NewCmd(ctx, append(words, args...)...)
	cmd.SetFirstKeyPos(3)
	// The command holds the error that this returns.
	_ = c.Process(ctx, onceCmd{cmd})
	return cmd
}

// numbers reads a reply that is an array of integers, at least n of them.
func numbers(cmd *redis.Cmd, n int) ([]int64, error) {
	reply, err := cmd.Int64Slice()
	if err == nil && len(reply) < n {
		err = fmt.Errorf("a reply of %d numbers, want %d", len(reply), n)
	}
	return reply, err
}

// tokenArgs appends tokens to the arguments of a script.
func tokenArgs(tokens []string, args ...any) []any {
	for _, token := range tokens {
		args = append(args, token)
	}
	return args
}
