package store

import "testing"

// Where the jobs of a tenant are is part of what Redis holds: these numbers never change.
func TestPartitionOf(t *testing.T) {
	for _, test := range []struct {
		tenant   string
		of, want int
	}{{"school-7", 16, 1}, {"school-7", 3, 1}, {"a", 64, 12}, {"tenant/ü", 16, 1}, {"school-7", 1, 0}} {
		if got := PartitionOf(test.tenant, test.of); got != test.want {
			t.Errorf("%q is in partition %d of %d, want %d", test.tenant, got, test.of, test.want)
		}
	}
}
