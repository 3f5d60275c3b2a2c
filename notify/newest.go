package notify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
)

// newest keeps an older message from replacing a newer one on a device: its retry can come after
// the newer one under the same collapse key. Each attempt writes down the instant of its job's
// offer before it sends, and is made only if no message with a later offer was written down for
// the device. The instants are in Redis, a sorted set for each collapse key of a user, with a
// member for each device.
type newest struct {
	rdb redis.UniversalClient // nil remembers nothing
}

const (
	newestLife   = time.Hour // an attempt takes far less
	newestRetry  = ledgerLife
	newestPrefix = ":notify:newest:"
)

// KEYS: the set. ARGV: the instant in microseconds, the device, the life in milliseconds.
// Returns the newest instant for the device. A life is never shortened.
var newestScript = redis.NewScript(`
redis.call('ZADD', KEYS[1], 'GT', ARGV[1], ARGV[2])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return redis.call('ZSCORE', KEYS[1], ARGV[2])`)

var errReplaced = errors.New("notify: a newer message with the same collapse key was sent to the device")

// begins writes down an attempt. It returns false if a newer message was written down before.
func (n newest) begins(ctx context.Context, job queue.Info, m Message, to Target) (bool, error) {
	return n.note(ctx, job, m, to, newestLife)
}

// retries keeps what is known for as long as the message may wait for its retry.
func (n newest) retries(ctx context.Context, job queue.Info, m Message, to Target) error {
	_, err := n.note(ctx, job, m, to, newestRetry)
	return err
}

func (n newest) note(ctx context.Context, job queue.Info, m Message, to Target, life time.Duration) (bool, error) {
	if n.rdb == nil || m.CollapseKey == "" || job.Offered.IsZero() {
		return true, nil
	}
	own := job.Offered.UnixMicro()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	text, err := newestScript.Run(ctx, n.rdb, []string{newestKey(job, m)}, own, fingerprint(to), life.Milliseconds()).Text()
	if err != nil {
		return true, fmt.Errorf("notify: noting the newest message under a collapse key: %w", err)
	}
	last, err := strconv.ParseFloat(text, 64) // exact: a float has 53 bits
	return err != nil || int64(last) <= own, nil
}

func newestKey(job queue.Info, m Message) string {
	sum := sha256.Sum256([]byte(job.Tenant + "\x00" + job.User + "\x00" + m.CollapseKey))
	return "wc:{" + job.Queue + "}" + newestPrefix + hex.EncodeToString(sum[:16])
}
