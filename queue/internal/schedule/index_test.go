package schedule

import "testing"

// A front reads on behind the last member that it knows. Where it was moved back, it reads all members from that bound on: also those
// whose names come before that member's.
func TestAFrontThatIsMovedBack(t *testing.T) {
	read := make([]Bound, frontChunk)
	for i := range read {
		read[i] = Bound{At: 10, Member: "m"}
	}
	for _, test := range []struct {
		lowered int64
		want    Span
	}{
		{11, Span{10, "m", frontChunk}},
		{10, Span{10, "", frontChunk}},
		{5, Span{5, "", frontChunk}},
	} {
		before, meanwhile := newFront(), newFront()
		before.learn(read)
		before.lower(test.lowered)
		meanwhile.ask()
		meanwhile.lower(test.lowered)
		meanwhile.learn(read)
		if before.next() != test.want || meanwhile.next() != test.want {
			t.Errorf("moved back to %d it reads %+v, and %+v if that was while it was read; want %+v", test.lowered, before.next(), meanwhile.next(), test.want)
		}
	}
}
