package store

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A keyCounter notes how many keys a script has at most.
type keyCounter struct{ scripts, most int }

func (k *keyCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (k *keyCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (k *keyCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			n, _ := cmd.Args()[2].(int)
			k.scripts, k.most = k.scripts+1, max(k.most, n)
		}
		return next(ctx, cmd)
	}
}

// However many tenants are forgotten at a time, each script touches few keys: nothing else runs in
// Redis meanwhile.
func TestManyTenantsAreForgottenInShortSteps(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		const tenants = 250
		var names []string
		for i := range tenants {
			names = append(names, fmt.Sprint("t", i))
			d.must(d.client.ZAdd(t.Context(), d.key.Tenants(), redis.Z{Member: Escape(names[i])}).Err())
		}
		var counter keyCounter
		d.client.AddHook(&counter)
		d.must(d.ForgetTenants(t.Context(), names))
		if left := d.client.ZCard(t.Context(), d.key.Tenants()).Val(); left != 0 {
			t.Errorf("%d tenants are left", left)
		}
		if counter.scripts < 2 || counter.most > 250 {
			t.Errorf("%d scripts, of at most %d keys", counter.scripts, counter.most)
		}
	})
}
