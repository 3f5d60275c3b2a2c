package members

import (
	"fmt"
	"testing"
)

func names(n int) []string {
	all := make([]string, n)
	for k := range all {
		all[k] = fmt.Sprint("worker-", k)
	}
	return all
}

// parts returns which workers take part in each of 64 partitions.
func parts(workers []string) map[int]map[string]bool {
	all := make(map[int]map[string]bool)
	for k := range 64 {
		all[k] = make(map[string]bool)
		for _, w := range workers {
			if Rank(k, w, workers) < Least {
				all[k][w] = true
			}
		}
	}
	return all
}

// Each partition has as many members as it should, each worker about as many partitions, and one that comes takes nothing from those of
// which it is no member.
func TestPartitionsHaveTheirMembers(t *testing.T) {
	workers := names(30)
	before, of := parts(workers), make(map[string]int)
	for k, in := range before {
		if len(in) != Least {
			t.Errorf("partition %d has %d members", k, len(in))
		}
		for w := range in {
			of[w]++
		}
	}
	for _, w := range workers {
		if n := of[w]; n < 1 || n > 16 {
			t.Errorf("%s takes part in %d partitions, want about %d", w, n, 64*Least/30)
		}
	}
	after := parts(append(workers, "new"))
	for k, in := range after {
		left := 0
		for w := range before[k] {
			if !in[w] {
				left++
			}
		}
		if want := map[bool]int{true: 1}[in["new"]]; left != want {
			t.Errorf("partition %d: %d members left, want %d", k, left, want)
		}
	}
	for k, in := range parts(names(2)) {
		if len(in) != 2 {
			t.Errorf("partition %d has %d members of 2 workers", k, len(in))
		}
	}
}

func TestWish(t *testing.T) {
	for _, test := range []struct {
		need               Need
		has, workers, want int
	}{
		{Enough, 3, 100, 0}, {Enough, 12, 100, 0}, {Busy, 3, 100, 0}, {Busy, 12, 100, 12}, {Short, 3, 100, 12}, {Short, 48, 100, 100}, {Short, 3, 2, 3}, {Short, 12, 5, 12},
	} {
		if got := Wish(test.need, test.has, test.workers); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}
