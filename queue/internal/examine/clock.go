package examine

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// clockSlack is how much later than Redis's clock a stamp may be: stamps count on from it
// where many jobs are offered in one microsecond.
const clockSlack = time.Second

// clock reads Redis's clock and compares it with the latest instants that it has said.
func (l *look) clock(ctx context.Context) error {
	said := func(ctx context.Context) (ahead int64, err error) {
		pipe := l.Client.TxPipeline()
		now, meta := pipe.Time(ctx), pipe.HMGet(ctx, l.key.Meta(), "beat", "stamp", "policies")
		if _, err := pipe.Exec(ctx); serious(err) != nil {
			return 0, err
		}
		l.now = now.Val().UnixMicro()
		for _, value := range meta.Val() {
			text, _ := value.(string)
			at, _ := strconv.ParseInt(text, 10, 64)
			ahead = max(ahead, at-l.now)
		}
		return ahead, nil
	}
	ahead, err := said(ctx)
	if err != nil || ahead <= clockSlack.Microseconds() {
		return err
	}
	l.behind = ahead
	by := (time.Duration(ahead) * time.Microsecond).Round(time.Millisecond)
	l.add(damage{
		Finding: Finding{
			Kind: Clock, Key: l.key.Meta(), Seen: fmt.Sprintf("Redis's clock is %v behind what it has said before", by),
			Problem: fmt.Sprintf("it was set back: what has a slot, a lease or a bound waits until it has caught up, in %v; set it right", by),
		},
		still: func(ctx context.Context) (bool, error) {
			ahead, err := said(ctx)
			return ahead > clockSlack.Microseconds(), err
		},
	})
	return nil
}

// number reads a number; false if it is none.
func number(value any) (int64, bool) {
	text, there := value.(string)
	if !there {
		return 0, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}
