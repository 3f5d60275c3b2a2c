package envelope

import (
	"math/rand/v2"
	"strconv"
	"testing"
)

// A stamp is read as strconv reads it, and nothing else is one.
func TestStamps(t *testing.T) {
	for i := range 10_000 {
		at := rand.Int64N(1 << (1 + i%52))
		stamp := Stamp(at)
		want, err := strconv.ParseInt(stamp, 16, 64)
		if got, ok := readStamp(stamp); err != nil || !ok || got != want || got != at {
			t.Fatalf("%s is read as %d, %v; want %d", stamp, got, ok, at)
		}
		if e := (&Envelope{Stamp: stamp}); e.Offered() != at {
			t.Fatalf("%s was offered at %d, want %d", stamp, e.Offered(), at)
		}
	}
	for _, text := range []string{"", "06440d1b3a6e", "06440d1b3a6e80", "06440d1b3a6eg", "06440D1B3A6E8", "-6440d1b3a6e8", "06440d1b3a6e ", "/:`@06440d1b3"} {
		if n, ok := readStamp(text); ok {
			t.Errorf("%q is read as the stamp %d", text, n)
		}
	}
}
