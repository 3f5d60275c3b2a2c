package store

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A worker takes one message, and what else has come by then at once, in its order.
func TestMailbox(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		for i := range 5 {
			d.must(d.client.RPush(t.Context(), "wc:{q}:mailbox:w", fmt.Sprint(1000+i, " message ", i)).Err())
		}
		message, at, err := d.Message(t.Context(), "w", time.Second)
		if err != nil || message != "message 0" || at != 1000 {
			t.Errorf("%q, %d, %v", message, at, err)
		}
		for _, want := range [][]string{{"message 1", "message 2", "message 3"}, {"message 4"}, nil} {
			if got, err := d.MoreMessages(t.Context(), "w", 3); err != nil || !slices.Equal(got, want) {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		}
		d.must(d.Nudge(t.Context(), "w", 7000))
		if _, loads, err := d.Records(t.Context(), []string{"w"}); err != nil || loads[0].Untaken != 7000 {
			t.Errorf("%+v, %v; want a message that is as old as it says", loads, err)
		}
		if message, at, err := d.Message(t.Context(), "w", time.Second); err != nil || message != "!" || at != 7000 {
			t.Errorf("%q, %d, %v", message, at, err)
		}
	})
}
