package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What is read of a job's past is about the newest job with its ID, whatever is left of those before, and in whatever order the
// notes came.
func TestPast(t *testing.T) {
	t.Parallel()
	first := PastAttempt{Number: 1, Ready: 1000, Slot: 1500, Rules: 400, Places: 100, Rule: "leak 1/s"}
	second := PastAttempt{Number: 2, Ready: 9000, Slot: 9000}
	end := func(a PastAttempt, started, ended int64, outcome, text string) PastAttempt {
		a.Started, a.Ended, a.Outcome, a.Error = started, ended, outcome, text
		return a
	}
	const offered, begin = 900, 1000
	for name, c := range map[string]struct {
		notes []PastNote
		want  Past
	}{
		"none":    {nil, Past{}},
		"it runs": {[]PastNote{ClaimedNote("a", offered, begin, first)}, Past{Offered: offered, Begin: begin, Attempts: []PastAttempt{first}}},
		"it has failed, and runs again": {
			[]PastNote{
				ClaimedNote("a", offered, begin, second), EndedNote("a", end(first, 1600, 1700, "failed", "status 503: later")),
				ClaimedNote("a", offered, begin, first),
			},
			Past{Offered: offered, Begin: begin, Attempts: []PastAttempt{end(first, 1600, 1700, "failed", "status 503: later"), second}},
		},
		"a stamp lies ahead of the start, by its place in the batch": {
			[]PastNote{ClaimedNote("a", 1005, 1005, PastAttempt{Number: 1, Ready: 1005, Slot: 1000}), EndedNote("a", PastAttempt{Number: 1, Started: 1000, Ended: 1100, Outcome: "done"})},
			Past{Offered: 1005, Begin: 1005, Attempts: []PastAttempt{{Number: 1, Ready: 1005, Slot: 1000, Started: 1000, Ended: 1100, Outcome: "done"}}},
		},
		"its claim is not known": {
			[]PastNote{EndedNote("a", end(PastAttempt{Number: 1}, 1600, 1700, "done", ""))},
			Past{Attempts: []PastAttempt{end(PastAttempt{Number: 1}, 1600, 1700, "done", "")}},
		},
		"the attempt was claimed again": {
			[]PastNote{EndedNote("a", end(first, 1200, 1300, "paused", "429")), ClaimedNote("a", offered, begin, first)},
			Past{Offered: offered, Begin: begin, Attempts: []PastAttempt{first}},
		},
		"dropped": {
			[]PastNote{DroppedNote("a", 2000, "rule", "marketing: window 5/24h")},
			Past{Dropped: 2000, Reason: "rule", Rule: "marketing: window 5/24h"},
		},
		"purged by somebody": {
			[]PastNote{ClaimedNote("a", offered, begin, first), DroppedNote("a", 2000, "purged", ""), AskedNote("a", 2000, Note{"ann", "gone: all 3 of them"})},
			Past{Offered: offered, Begin: begin, Attempts: []PastAttempt{first}, Dropped: 2000, Reason: "purged", Asked: 2000, By: Note{"ann", "gone: all 3 of them"}},
		},
		"one before was purged": {
			[]PastNote{DroppedNote("a", 800, "purged", ""), AskedNote("a", 800, Note{"ann", "gone"}), ClaimedNote("a", offered, begin, first)},
			Past{Offered: offered, Begin: begin, Attempts: []PastAttempt{first}},
		},
		"one before had more attempts, and was dropped": {
			[]PastNote{
				ClaimedNote("a", 100, 100, PastAttempt{Number: 1, Ready: 100, Slot: 100}), ClaimedNote("a", 100, 100, PastAttempt{Number: 2, Ready: 200, Slot: 200}),
				EndedNote("a", end(PastAttempt{Number: 2}, 200, 300, "failed", "no")), EndedNote("a", end(PastAttempt{Number: 3}, 400, 500, "failed", "no")),
				DroppedNote("a", 600, "expired", ""), ClaimedNote("a", offered, begin, first),
			},
			Past{Offered: offered, Begin: begin, Attempts: []PastAttempt{first}},
		},
		"others' notes, and malformed ones": {
			[]PastNote{{"a", "1c", "x y"}, {"a", "1e", "1"}, {"a", "d", ""}, {"a", "odd", "7"}, ClaimedNote("b", 1, 1, second)},
			Past{},
		},
		"more attempts than are kept": {
			[]PastNote{
				EndedNote("a", end(PastAttempt{Number: 20}, 10, 20, "failed", "")), EndedNote("a", end(PastAttempt{Number: 33}, 30, 40, "done", "")),
			},
			Past{Attempts: []PastAttempt{end(PastAttempt{Number: 20}, 30, 40, "done", "")}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			onDesks(t, func(t *testing.T, d *desk) {
				for _, id := range []string{"a", "b"} {
					d.must(d.client.Set(t.Context(), d.key.ID(id), WasStarted, time.Hour).Err())
				}
				for _, n := range c.notes {
					d.must(d.NotePast(t.Context(), []PastNote{n}, time.Hour))
					d.must(d.NotePast(t.Context(), []PastNote{n}, time.Hour)) // again: no effect
				}
				got, err := d.Past(t.Context(), "a")
				d.must(err)
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// A past is known as long as the ID, and nothing is written of an ID that is not known.
func TestPastExpiresWithItsID(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		d.must(d.client.Set(t.Context(), d.key.ID("short"), WasStarted, time.Minute).Err())
		d.must(d.client.Set(t.Context(), d.key.ID("cancelled"), WasCancelled, 0).Err())
		note := func(id string) PastNote { return DroppedNote(id, 1, "cancelled", "") }
		d.must(d.NotePast(t.Context(), []PastNote{note("short"), note("cancelled"), note("unknown")}, time.Hour))
		for id, most := range map[string]time.Duration{"short": time.Minute, "cancelled": time.Hour} {
			if left := d.client.PTTL(t.Context(), d.key.Past(id)).Val(); left <= most/2 || left > most {
				t.Errorf("the past of %s is known for another %v, want %v", id, left, most)
			}
		}
		if n := d.client.Exists(t.Context(), d.key.Past("unknown")).Val(); n > 0 {
			t.Error("there is a past of an ID that is not known")
		}
	})
}

// A key of another type among the good ones keeps nobody else's notes from being written, and is no reason to write them again.
func TestPastWithABrokenKey(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		var notes []PastNote
		for _, id := range []string{"a", "broken", "b"} {
			d.must(d.client.Set(t.Context(), d.key.ID(id), WasStarted, time.Hour).Err())
			notes = append(notes, DroppedNote(id, 7, "rule", ""))
		}
		d.must(d.client.Set(t.Context(), d.key.Past("broken"), "odd", 0).Err())
		d.must(d.NotePast(t.Context(), notes, time.Hour))
		for id, want := range map[string]int64{"a": 7, "broken": 0, "b": 7} {
			past, err := d.Past(t.Context(), id)
			d.must(err)
			if past.Dropped != want {
				t.Errorf("%s was dropped at %d, want %d", id, past.Dropped, want)
			}
		}
	})
}
