package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/waterclock/waterclock/throttle"
)

const (
	pictureDir  = "../docs"
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
	return b.draw(pictureFile, func() string { return draw(traces) })
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

// draw makes a line of ticks for each rule. Grey lines are whole seconds.
func draw(traces []trace) string {
	const left, width, row, top = 250, 690, 44, 40
	x := func(at time.Duration) float64 { return left + width*at.Seconds()/5 }
	height := top + row*len(traces) + 20
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 %d" font-family="sans-serif" font-size="14">`+"\n", height)
	fmt.Fprintf(&b, `<rect width="960" height="%d" fill="#fff"/>`+"\n", height)
	fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#eef4fb"/>`+"\n",
		x(600*time.Millisecond), top-14, x(4600*time.Millisecond)-x(600*time.Millisecond), height-top)
	for s := range 6 {
		at := x(time.Duration(s) * time.Second)
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#bbb"/><text x="%.1f" y="18" text-anchor="middle" fill="#666">%d s</text>`+"\n",
			at, top-14, at, height-14, at, s)
	}
	for i, t := range traces {
		y := top + row*i
		fmt.Fprintf(&b, `<text x="10" y="%d">%s</text>`+"\n", y+16, t.rule)
		for _, at := range t.starts {
			fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="3" height="24" rx="1" fill="#1f6fb2" fill-opacity="0.75"/>`+"\n", x(at)-1.5, y)
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}
