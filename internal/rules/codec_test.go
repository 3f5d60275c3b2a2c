package rules_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
)

func FuzzDecode(f *testing.F) {
	var every []rules.Rule
	rnd := rand.New(rand.NewPCG(5, 5))
	for _, kind := range allKinds {
		for i := range 3 {
			r := randomRule(rnd, kind)
			r.Shadow, r.Counts = i == 1, i == 2
			if kind == rules.Leak && i > 0 {
				r.Ramp = time.Minute
			}
			every = append(every, r)
		}
	}
	set := rules.Compile(0, every...)
	var st rules.State
	for i := range int64(9) {
		set.Spend(&st, rules.At(start0+i*1000), int(i), true)
		set.SpendRefused(&st, start0+i*1000+3, 1)
		f.Add(string(st.Append(nil)))
	}
	for _, text := range []string{"", "\x00", "\x01", "\x02", "\x01\x00", "\x01\x07\xff", "1763600000123457;leak1 1 2 3"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var st rules.State
		if err := st.Decode(text); err != nil {
			if !st.Empty() {
				t.Errorf("%v leaves a state", err)
			}
			return
		}
		recode(t, &st)
		for _, now := range []int64{0, start0} {
			at, _ := set.Earliest(&st, now, 1)
			if at < now || at > rules.Never {
				t.Errorf("the slot %d at %d", at, now)
			}
			set.Refund(&st, rules.At(now), 1, false)
			set.Spend(&st, rules.At(at), 1, true)
			set.Full(&st)
			recode(t, &st)
		}
		set.Forget(&st, rules.Never)
	})
}

// Text of which one byte is wrong is an error or another state, never a panic.
func TestDecodeGarbage(t *testing.T) {
	set := rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 9, Period: time.Minute},
		rules.Rule{Kind: rules.TokenBucket, Limit: 9, Period: time.Minute, Burst: 3})
	var st rules.State
	for i := range int64(9) {
		set.Spend(&st, rules.At(start0+i), 1, true)
	}
	text := st.Append(nil)
	for i := range text {
		for _, with := range []byte{0, 1, 0x7f, 0x80, 0xff} {
			broken := append([]byte(nil), text...)
			broken[i] = with
			if st.Decode(string(broken)) == nil {
				recode(t, &st)
			}
		}
		if i > 0 && st.Decode(string(text[:i])) == nil && i != 1 {
			recode(t, &st)
		}
	}
	if err := st.Decode("\x02" + string(text[1:])); err == nil {
		t.Error("another version is read")
	}
}
