package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/waterclock/waterclock/throttle"
)

const (
	pictureDir  = "docs"
	pictureFile = "rules.svg"
	flood       = 4 * time.Second
	perTry      = 5 * time.Millisecond
)

// A trace is what one rule admitted of the flood.
type trace struct {
	rule   throttle.Rule
	starts []time.Duration // since the begin of a whole second, 400 ms before the flood
}

// runPicture floods each rule with a try every 5 ms for 4 seconds, from 400 ms before the
// edge of a second, and draws what was admitted.
func runPicture(ctx context.Context, b *bench) error {
	traces := []trace{
		{rule: throttle.Leak(5, time.Second)},
		{rule: throttle.TokenBucket(5, time.Second, 5)},
		{rule: throttle.Window(5, time.Second)},
		{rule: throttle.Spacing(200 * time.Millisecond)},
		{rule: throttle.FixedWindow(5, time.Second)},
		{rule: throttle.SlidingCounter(5, time.Second, 2)},
		{rule: throttle.SlidingCounter(5, time.Second, 4)},
	}
	limiter := throttle.New(throttle.NewRedisStore(b.client, "picture"))
	second := time.Now().Truncate(time.Second).Add(2 * time.Second)
	errs := make([]error, len(traces))
	var group sync.WaitGroup
	for i := range traces {
		group.Go(func() {
			errs[i] = traces[i].record(ctx, limiter, second)
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	for _, t := range traces {
		b.row(fmt.Sprintf("%s, admitted in %v", t.rule, flood), "starts").add(float64(len(t.starts)))
		b.row(fmt.Sprintf("%s, most in any second", t.rule), "starts").add(float64(t.most(time.Second)))
		b.row(fmt.Sprintf("%s, the first 5 took", t.rule), "ms").add(float64((t.starts[4] - t.starts[0]).Milliseconds()))
	}
	if b.plots == "" {
		b.plots = pictureDir
	}
	return b.draw(pictureFile, func() string { return drawTraces(traces) })
}

// record asks until the flood is over.
func (t *trace) record(ctx context.Context, limiter *throttle.Limiter, second time.Time) error {
	begin := second.Add(600 * time.Millisecond)
	time.Sleep(time.Until(begin))
	subject := throttle.Subject{Key: t.rule.String(), Rules: []throttle.Rule{t.rule}}
	for time.Since(begin) < flood {
		d, err := limiter.Allow(ctx, 1, subject)
		if err != nil {
			return err
		}
		if d.Outcome == throttle.Admitted {
			t.starts = append(t.starts, d.Slot.Sub(second))
		}
		time.Sleep(perTry)
	}
	return nil
}

// most is the largest number of starts in any span of that length.
func (t *trace) most(span time.Duration) (most int) {
	for i, from := range t.starts {
		n := 0
		for _, at := range t.starts[i:] {
			if at-from < span {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// drawTraces makes a line of ticks for each rule; what is shaded is the flood.
func drawTraces(traces []trace) string {
	const row = 44
	c := newCanvas(960, float64(110+row*len(traces)), "What each rule admits of one flood")
	c.left, c.top, c.bottom = 250, 50, 40
	x := c.across(0, 5, linear)
	begin, end := x.at(0.6), x.at(0.6+flood.Seconds())
	fmt.Fprintf(c, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" class="fa" fill-opacity="0.08"/>`+"\n",
		begin, c.top, end-begin, c.height-c.top-c.bottom)
	c.marksAcross(x, []float64{0, 1, 2, 3, 4, 5}, func(v float64) string { return fmt.Sprintf("%g s", v) }, "")
	for i, t := range traces {
		y := c.top + 10 + row*float64(i)
		c.text(point{20, y + 16}, "start", "", t.rule.String())
		for _, at := range t.starts {
			fmt.Fprintf(c, `<rect x="%.1f" y="%.1f" width="3" height="24" rx="1" class="fa" fill-opacity="0.75"/>`+"\n",
				x.at(at.Seconds())-1.5, y)
		}
	}
	return c.end()
}
