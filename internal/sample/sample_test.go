package sample_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/waterclock/waterclock/internal/sample"
)

func numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// A sample is in order and without repetition, the same for the same seed and test, and another
// one otherwise.
func TestDraw(t *testing.T) {
	all := numbers(1000)
	draw := func(t *testing.T, seed string) []int {
		t.Setenv(sample.Exhaustive, "")
		t.Setenv(sample.Seed, seed)
		return sample.Draw(t, all, 10, 10)
	}
	first := draw(t, "1")
	if len(first) != 10 || !slices.IsSorted(first) || len(slices.Compact(slices.Clone(first))) != 10 {
		t.Errorf("drawn %v", first)
	}
	if again := draw(t, "1"); !slices.Equal(first, again) {
		t.Errorf("the same seed draws %v, then %v", first, again)
	}
	if other := draw(t, "2"); slices.Equal(first, other) {
		t.Errorf("another seed draws the same: %v", other)
	}
	t.Run("another", func(t *testing.T) {
		if other := draw(t, "1"); slices.Equal(first, other) {
			t.Errorf("another test draws the same: %v", other)
		}
	})
}

// Every case is drawn by one seed or another.
func TestEveryCaseHasItsTurn(t *testing.T) {
	t.Setenv(sample.Exhaustive, "")
	all, met := numbers(20), make(map[int]bool)
	for seed := range 100 {
		t.Setenv(sample.Seed, fmt.Sprint(seed))
		for _, n := range sample.Draw(t, all, 2, 2) {
			met[n] = true
		}
	}
	if len(met) != len(all) {
		t.Errorf("%d of %d cases were drawn", len(met), len(all))
	}
}

// Where it is asked for, or where there are no more, all are run.
func TestWhole(t *testing.T) {
	all := numbers(5)
	t.Setenv(sample.Exhaustive, "")
	if drawn := sample.Draw(t, all, 5, 9); !slices.Equal(drawn, all) {
		t.Errorf("drawn %v", drawn)
	}
	t.Setenv(sample.Exhaustive, "1")
	if drawn := sample.Draw(t, all, 0, 1); !slices.Equal(drawn, all) || sample.Size(0, 1, 2) != 2 {
		t.Errorf("drawn %v", drawn)
	}
}

// Under -short a test without a sample is skipped.
func TestNone(t *testing.T) {
	t.Setenv(sample.Exhaustive, "")
	skipped := false
	t.Run("none", func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		sample.Draw(t, numbers(5), 0, 0)
	})
	if !skipped {
		t.Error("it is run")
	}
}

// Cases are drawn by their names, and each comes with what it is.
func TestCases(t *testing.T) {
	t.Setenv(sample.Exhaustive, "")
	t.Setenv(sample.Seed, "1")
	var names []string
	for name, n := range sample.Cases(t, map[string]int{"1": 1, "2": 2, "3": 3, "4": 4}, 3, 3) {
		if names = append(names, name); fmt.Sprint(n) != name {
			t.Errorf("%s is %d", name, n)
		}
	}
	if len(names) != 3 || !slices.IsSorted(names) {
		t.Errorf("drawn %q", names)
	}
}
