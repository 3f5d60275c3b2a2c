package worker

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// What could not be written, since Redis was away, is written later, and before what comes then.
func TestNotesAreKeptWhileRedisIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, server := wired(t, new(log))
		w.cfg.History = time.Hour
		server.SetError("LOADING Redis is loading the dataset in memory")
		note := func(from, to int) {
			for i := from; i < to; i++ {
				id := fmt.Sprint("job-", i)
				server.Set("wc:{q}:id:"+id, "started")
				w.Past.Dropped(&envelope.Envelope{ID: id}, 7, "rule", "")
			}
		}
		note(0, 1500)
		if err := w.Past.write(t.Context()); err == nil {
			t.Error("notes are written to a Redis that is away")
		}
		note(1500, 1600)
		server.SetError("")
		if err := w.Past.write(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 1600 {
			past, err := w.Store.Past(t.Context(), fmt.Sprint("job-", i))
			if err != nil || past.Dropped != 7 {
				t.Fatalf("the note of job %d is %+v, %v", i, past, err)
			}
		}
	})
}
