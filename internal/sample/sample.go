// Package sample chooses which cases of an exhaustive test are run.
//
// A test with many cases, each of them slow, runs a few under -short, a bounded number otherwise,
// and all where the environment says [Exhaustive]. Which ones is drawn by a seed, which the test
// prints; with the same [Seed] in the environment it draws the same ones:
//
//	WATERCLOCK_SEED=7 go test ./test/faults
//	WATERCLOCK_EXHAUSTIVE=1 go test ./test/faults
package sample

import (
	"hash/fnv"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// The environment variables of this package.
const (
	Exhaustive = "WATERCLOCK_EXHAUSTIVE" // if it is set, every case is run
	Seed       = "WATERCLOCK_SEED"       // a number; a new one is drawn if it is not set
	SlowToo    = "WATERCLOCK_SLOW_TOO"   // with it -short runs tests that [Slow] marks: with 1 all of them, with 3 one in three
)

// Whole reports whether every case is to be run.
func Whole() bool { return os.Getenv(Exhaustive) != "" }

// WholeOnly skips a test that is too slow to be run with the others.
func WholeOnly(t testing.TB) {
	t.Helper()
	if !Whole() {
		t.Skipf("takes long; %s=1 runs it", Exhaustive)
	}
}

// Slow skips a test that takes more than a second under -short, unless [SlowToo] asks for it: under the
// race detector those that take minutes are skipped, and some of these are not.
func Slow(t testing.TB) {
	if !testing.Short() {
		return
	}
	oneIn, _ := strconv.Atoi(os.Getenv(SlowToo))
	if oneIn < 1 || Rand(t, SeedOf(t)).IntN(oneIn) > 0 {
		t.Skip("takes seconds")
	}
}

// Size returns how much of something a test does: the first under -short, the second otherwise,
// and the third where every case is to be run.
func Size(short, usual, whole int) int {
	switch {
	case Whole():
		return whole
	case testing.Short():
		return short
	}
	return usual
}

// Draw returns the cases that a test runs, in the order that they have: so many under -short, so
// many otherwise, and all where every case is to be run. If the number is 0, the test is skipped.
func Draw[T any](t testing.TB, all []T, short, usual int) []T {
	t.Helper()
	n := Size(short, usual, len(all))
	if n >= len(all) {
		return all
	}
	if n == 0 {
		t.Skip("left out under -short")
	}
	seed := SeedOf(t)
	t.Logf("%d of %d cases; %s=1 runs all", n, len(all), Exhaustive)
	chosen := Rand(t, seed).Perm(len(all))[:n]
	slices.Sort(chosen)
	cases := make([]T, n)
	for i, at := range chosen {
		cases[i] = all[at]
	}
	return cases
}

// Cases is [Draw] of cases that have names.
func Cases[T any](t testing.TB, all map[string]T, short, usual int) iter.Seq2[string, T] {
	t.Helper()
	names := Draw(t, slices.Sorted(maps.Keys(all)), short, usual)
	return func(yield func(string, T) bool) {
		for _, name := range names {
			if !yield(name, all[name]) {
				return
			}
		}
	}
}

// drawn is the seed where the environment has none: one for all tests of a process, so that what one
// of them has printed repeats it all.
var drawn = sync.OnceValue(rand.Uint32)

// SeedOf returns the seed of a test, and prints it.
func SeedOf(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(drawn())
	if text := os.Getenv(Seed); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s is %q; want a number", Seed, text)
		}
	}
	t.Logf("%s=%d", Seed, seed)
	return seed
}

// Rand returns random numbers that depend on a seed and on the test's name alone.
func Rand(t testing.TB, seed uint64) *rand.Rand {
	name := fnv.New64a()
	_, _ = io.WriteString(name, t.Name()) // a hash takes everything
	return rand.New(rand.NewPCG(seed, name.Sum64()))
}
