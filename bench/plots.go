package main

import (
	"fmt"
	"math"
	"strings"
)

// drawBars draws a bar up to the median of each row, and a line from its least to its
// most. Rows that begin with "waterclock" have our colour.
func drawBars(title, unit string, rows []*row) string {
	const perBar = 30
	c := newCanvas(900, float64(120+perBar*len(rows)), title)
	c.left, c.top, c.right = 300, 50, 80
	most := 0.0
	for _, r := range rows {
		most = max(most, r.Max)
	}
	ticks := roundTicks(most, 6)
	x := c.across(0, ticks[len(ticks)-1], linear)
	c.marksAcross(x, ticks, short, unit)
	for i, r := range rows {
		y := c.top + perBar*float64(i) + 6
		class := "fb"
		if strings.HasPrefix(r.What, "waterclock") {
			class = "fa"
		}
		fmt.Fprintf(c, `<rect x="%.1f" y="%.1f" width="%.1f" height="18" rx="2" class="%s"/>`+"\n",
			x.at(0), y, x.at(r.Median)-x.at(0), class)
		c.line(point{x.at(r.Min), y + 9}, point{x.at(r.Max), y + 9}, "ink")
		c.text(point{c.left - 10, y + 14}, "end", "", r.What)
		c.text(point{x.at(r.Max) + 8, y + 14}, "start", "faint", figure(r.Median))
	}
	return c.end()
}

// A distribution is sorted times in milliseconds.
type distribution struct {
	name  string
	times []float64
}

// drawDistribution draws which part of the times lies below each value. The axis is
// logarithmic on both sides of zero, and linear below 10 µs.
func drawDistribution(title string, of []distribution) string {
	const finest = 0.01
	symlog := func(v float64) float64 { return math.Copysign(math.Log10(1+math.Abs(v)/finest), v) }
	c := newCanvas(900, 420, title)
	x := c.across(-1000, 1000, symlog)
	y := c.up(0, 100, linear)
	label := func(v float64) string {
		if v == 0 {
			return "slot"
		}
		return strings.Replace(fmt.Sprintf("%+g", v), "-", "−", 1)
	}
	c.marksAcross(x, []float64{-1000, -100, -10, -1, -0.1, 0, 0.1, 1, 10, 100, 1000}, label, "ms after the slot")
	c.marksUp(y, []float64{0, 25, 50, 75, 100}, func(v float64) string { return fmt.Sprintf("%g %%", v) }, "started")
	c.line(point{x.at(0), c.top}, point{x.at(0), c.height - c.bottom}, "axis")
	var names []string
	for i, d := range of {
		names = append(names, d.name)
		points := []point{{x.from, y.at(0)}}
		const steps = 1000
		for k := range steps + 1 {
			part := float64(k) / steps
			points = append(points, point{x.at(quantile(d.times, part)), y.at(100 * part)})
		}
		c.path("s"+colour(i), append(points, point{x.to, y.at(100)}))
	}
	c.legend(names)
	return c.end()
}

// A line is a row for each size.
type line struct {
	name string
	rows []*row
}

// A chart says what lines are about, and what their axes are.
type chart struct {
	title, across, up string
}

// drawLines draws medians against sizes, the sizes on a logarithmic axis, with a mark
// from the least to the most of each.
func drawLines(about chart, sizes []int, lines []line) string {
	c := newCanvas(900, 420, about.title)
	most := 0.0
	var ticks []float64
	for _, n := range sizes {
		ticks = append(ticks, float64(n))
	}
	for _, l := range lines {
		for _, r := range l.rows {
			most = max(most, r.Max)
		}
	}
	high := roundTicks(most, 6)
	x := c.across(ticks[0]/1.5, ticks[len(ticks)-1]*1.5, math.Log10)
	y := c.up(0, high[len(high)-1], linear)
	c.marksAcross(x, ticks, short, about.across)
	c.marksUp(y, high, short, about.up)
	var names []string
	for i, l := range lines {
		names = append(names, l.name)
		var points []point
		for k, r := range l.rows {
			at := point{x.at(ticks[k]), y.at(r.Median)}
			points = append(points, at)
			c.line(point{at.x, y.at(r.Min)}, point{at.x, y.at(r.Max)}, "ink")
			fmt.Fprintf(c, `<circle cx="%.1f" cy="%.1f" r="4" class="f%s"/>`+"\n", at.x, at.y, colour(i))
			below := float64(i) * 26
			c.text(point{at.x + 8, at.y - 8 + below}, "start", "faint", figure(r.Median))
		}
		c.path("s"+colour(i), points)
	}
	c.legend(names)
	return c.end()
}

// drawTimeline draws waits as dots, on a logarithmic axis, above an area that shows how
// many jobs of somebody else wait.
func drawTimeline(title string, waits, backlog []sighting) string {
	c := newCanvas(900, 460, title)
	end, most := 0.0, 1.0
	for _, s := range backlog {
		end, most = max(end, s.at.Seconds()), max(most, s.value)
	}
	seconds := roundTicks(end, 10)
	x := c.across(0, end, linear)
	for len(seconds) > 1 && seconds[len(seconds)-1] > end {
		seconds = seconds[:len(seconds)-1]
	}
	y := c.up(0.1, 1000, math.Log10)
	c.marksAcross(x, seconds, func(v float64) string { return fmt.Sprintf("%g s", v) }, "")
	c.marksUp(y, []float64{0.1, 1, 10, 100, 1000}, func(v float64) string { return fmt.Sprintf("%g ms", v) }, "wait")
	fmt.Fprintf(c, `<path class="fb" fill-opacity="0.2" d="M%.1f %.1f`, x.at(0), c.height-c.bottom)
	area := scale{from: c.height - c.bottom, to: c.top, curve: linear, high: most}
	for _, s := range backlog {
		fmt.Fprintf(c, "L%.1f %.1f", x.at(s.at.Seconds()), area.at(s.value))
	}
	fmt.Fprintf(c, "L%.1f %.1fZ\"/>\n", x.to, c.height-c.bottom)
	const dots = 3000 // more are no more to see; but none of the slow ones is left out
	every := 1 + len(waits)/dots
	for i, s := range waits {
		if i%every == 0 || s.value > 10 {
			fmt.Fprintf(c, `<circle cx="%.1f" cy="%.1f" r="1.3" class="fa" fill-opacity="0.6"/>`+"\n", x.at(s.at.Seconds()), y.at(s.value))
		}
	}
	c.legend([]string{"another tenant's job", "the burst's waiting jobs, up to " + thousands(int64(most))})
	return c.end()
}
