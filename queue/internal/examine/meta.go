package examine

import (
	"context"
	"strconv"

	"github.com/waterclock/waterclock/queue/internal/store"
)

// settings are what meta says about other keys, and those keys.
type settings struct {
	version, inForce string // of the policies: as meta says, and as they do
	paused           string
	pauses           int64
}

// meta looks for settings that contradict the keys that they are about. It is so after meta
// was deleted.
func (l *look) meta(ctx context.Context) error {
	s, err := l.settings(ctx)
	if err != nil {
		return err
	}
	l.contradiction(s, "policies", func(s settings) (string, string) { return s.version, s.inForce },
		"offers are refused, and the leader waits for policies")
	l.contradiction(s, "paused", func(s settings) (string, string) {
		if s.pauses > 0 {
			return s.paused, "1"
		}
		return s.paused, s.paused
	}, "offers do not see that there are pauses")
	return nil
}

// contradiction notes a field of meta that says something else than it should.
func (l *look) contradiction(now settings, field string, values func(settings) (is, want string), problem string) {
	if is, want := values(now); is == want {
		return
	}
	is, want := values(now)
	l.add(damage{
		Finding: Finding{
			Kind: Meta, Key: l.key.Meta(), Seen: field + " is " + strconv.Quote(is) + ", want " + strconv.Quote(want),
			Problem: problem, Repair: "it is set",
		},
		still: func(ctx context.Context) (bool, error) {
			s, err := l.settings(ctx)
			is, want := values(s)
			return is != want, err
		},
		mend: func(ctx context.Context) error {
			return l.repair(ctx, store.Mend{Do: [][]any{{"HSET", l.key.Meta(), field, want}}})
		},
	})
}

// settings reads the settings at one instant.
func (l *look) settings(ctx context.Context) (s settings, err error) {
	pipe := l.Client.TxPipeline()
	meta := pipe.HMGet(ctx, l.key.Meta(), "policies", "paused")
	version, pauses := pipe.HGet(ctx, l.key.Policies(), "version"), pipe.ZCard(ctx, l.key.Paused())
	if _, err := pipe.Exec(ctx); serious(err) != nil {
		return s, err
	}
	text := func(i int, none string) string {
		if len(meta.Val()) <= i || meta.Val()[i] == nil {
			return none
		}
		text, _ := meta.Val()[i].(string)
		return text
	}
	s = settings{version: text(0, "0"), inForce: "0", paused: text(1, "0"), pauses: pauses.Val()}
	if version.Val() != "" {
		s.inForce = version.Val()
	}
	return s, nil
}
