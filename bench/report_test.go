package main

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestRowsAreComparedByTheirMedians(t *testing.T) {
	ours, theirs := &row{What: "ours"}, &row{What: "theirs"}
	for i, v := range []float64{30, 10, 90} {
		ours.add(v)
		theirs.add(float64(10 * (i + 1)))
	}
	ours.over(theirs).wantRatioAtLeast(1.6)
	if ours.Ratio != 1.5 || *ours.Met || ours.Against != "theirs" {
		t.Errorf("30 over 20, at least 1.6: ratio %v, met %v, against %q", ours.Ratio, *ours.Met, ours.Against)
	}
	ours.under(theirs).wantAtMost(30)
	if ours.Ratio != 20.0/30 || !*ours.Met {
		t.Errorf("30 under 20, at most 30: ratio %v, met %v", ours.Ratio, *ours.Met)
	}
	if ours.wantEachAtMost(89); *ours.Met {
		t.Error("30, 10 and 90 are at most 89 each")
	}
	if ours.Min != 10 || ours.Max != 90 {
		t.Errorf("from %v to %v, want from 10 to 90", ours.Min, ours.Max)
	}
}

// A report that JSON cannot hold would be lost after half an hour of measuring.
func TestNothingIsDividedByZero(t *testing.T) {
	r := report{Rows: []*row{{What: "empty"}, {What: "zero"}}}
	zero := r.Rows[1]
	zero.add(0)
	zero.over(zero).wantAtMost(0)
	r.measured()
	var text strings.Builder
	if err := r.writeJSON(&text); err != nil {
		t.Error(err)
	}
	if strings.Contains(text.String(), "empty") {
		t.Error("a row without a round is reported")
	}
}

func TestFigures(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.00012345: "0.000123", 12.345: "12.3", 999.4: "999", 1234.4: "1,234", -1234567: "-1,234,567",
	} {
		if got := figure(v); got != want {
			t.Errorf("figure(%v) = %s, want %s", v, got, want)
		}
	}
}

func TestMeanRateOfEvenStartsAndOfBursts(t *testing.T) {
	var even, bursts []time.Time
	for i := range 500 {
		even = append(even, time.UnixMilli(int64(20*i)))
		bursts = append(bursts, time.UnixMilli(int64(i/50*1000+i%50)))
	}
	if rate := meanRate(even); math.Abs(rate-50) > 1e-6 {
		t.Errorf("a start every 20 ms is a rate of %v", rate)
	}
	if rate := meanRate(bursts); math.Abs(rate-50) > 1 {
		t.Errorf("50 starts at the begin of every second are a rate of %v", rate)
	}
}
