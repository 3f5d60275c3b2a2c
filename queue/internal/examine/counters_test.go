package examine

import (
	"context"
	"strings"
	"testing"
)

// A difference that moves too fast to be measured is left, and said to be.
func TestCountersThatMove(t *testing.T) {
	l := &look{Examiner: &Examiner{}, more: make(map[Kind]int)}
	err := l.compare(t.Context(), "key", "jobs", func(context.Context) (gap, bool, error) { return gap{1, 3}, true, nil })
	if err != nil || len(l.found) != 1 {
		t.Fatalf("found %+v, %v", l.found, err)
	}
	mended, err := l.mendAll(t.Context())
	if err != nil || len(mended) > 0 {
		t.Errorf("mended %+v, %v", mended, err)
	}
	left := l.findings()
	if len(left) != 1 || !strings.Contains(left[0].Seen, "1 to 3 more") || !strings.Contains(left[0].Repair, "repair again when fewer do") {
		t.Errorf("left: %+v", left)
	}
}
