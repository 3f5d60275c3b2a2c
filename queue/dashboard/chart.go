package dashboard

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/queue/watch"
)

// A chart is what the template draws as SVG, in units of its view box.
type chart struct {
	Title  string
	Says   string // the chart in a sentence, for who cannot see it
	Empty  bool
	Paths  []stroke
	Ticks  []tick // of the vertical axis
	Times  []tick // of the horizontal one
	Legend []key
}

// A stroke is a line or an area.
type stroke struct{ Class, D string }

// A tick is a text at a place: a value of the vertical axis, or how far right.
type tick struct {
	At   float64
	Text string
}

// A key of the legend: a line, and what it is now. Without a class nothing is drawn.
type key struct{ Class, Name, Now string }

// The view box of a chart, and where in it the lines are.
const (
	chartWidth, chartHeight = 400.0, 150.0
	chartLeft, chartRight   = 38.0, 396.0
	chartTop, chartBottom   = 8.0, 130.0
	chartSteps              = 120
)

// A line is something to draw: its value between two points, false where nobody knows it.
type line struct {
	name, class string
	value       func(a, b watch.Point) (float64, bool)
}

// A series is the points of a chart, oldest first, that end now.
type series struct {
	points []watch.Point
	now    time.Time
	span   watch.Chart
}

// values returns a line's values in steps of equal length; NaN where there are no points.
func (s series) values(l line) []float64 {
	all := make([]float64, chartSteps)
	for i := range all {
		all[i] = math.NaN()
	}
	step := s.span.Length() / chartSteps
	begin := s.now.Add(-s.span.Length())
	gap := 3 * max(step, s.span.Step())
	first := 0 // the last point of the step before
	for i := 0; i < len(s.points); {
		at := int(s.points[i].At.Sub(begin) / step)
		last := i
		for last+1 < len(s.points) && int(s.points[last+1].At.Sub(begin)/step) == at {
			last++
		}
		a, b := s.points[first], s.points[last]
		if at >= 0 && at < chartSteps && first != last && b.At.Sub(a.At) <= gap {
			if value, ok := l.value(a, b); ok {
				all[at] = value
			}
		}
		first, i = last, last+1
	}
	return all
}

// lines draws lines over each other.
func (s series) lines(title string, of ...line) chart {
	c := s.frame(title, s.top(of))
	for _, l := range of {
		values := s.values(l)
		class, filled := strings.CutSuffix(l.class, " fill")
		if filled {
			c.Paths = append(c.Paths, stroke{class + " area", c.area(values, nil)})
		}
		c.Paths = append(c.Paths, stroke{class + " line", c.polyline(values)})
		c.Legend = append(c.Legend, key{class, l.name, last(values)})
	}
	c.tell()
	return c
}

// top returns the largest value of lines.
func (s series) top(of []line) float64 {
	top := 0.0
	for _, l := range of {
		for _, v := range s.values(l) {
			if v > top { // NaN is not
				top = v
			}
		}
	}
	return top
}

// stack draws lines on top of each other, as areas.
func (s series) stack(title string, of []line) chart {
	sums := make([][]float64, 0, len(of)+1)
	base := make([]float64, chartSteps)
	top := 0.0
	var newest []string
	for _, l := range of {
		values := s.values(l)
		newest = append(newest, last(values))
		sum := make([]float64, chartSteps)
		for i, v := range values {
			sum[i] = base[i] + v // NaN stays
			if sum[i] > top {
				top = sum[i]
			}
		}
		sums = append(sums, sum)
		base = sum
	}
	c := s.frame(title, top)
	under := make([]float64, chartSteps)
	for i, l := range of {
		c.Paths = append(c.Paths, stroke{l.class + " area solid", c.area(sums[i], under)})
		c.Legend = append(c.Legend, key{l.class, l.name, newest[i]})
		under = sums[i]
	}
	c.tell()
	return c
}

// frame returns a chart without lines, for values up to a top.
func (s series) frame(title string, top float64) chart {
	c := chart{Title: title, Empty: len(s.points) < 2}
	c.Ticks = scale(top)
	for i := range 4 {
		ago := s.span.Length() * time.Duration(3-i) / 3
		text := "now"
		if i < 3 {
			text = "−" + axisSpan(ago)
		}
		c.Times = append(c.Times, tick{chartLeft + (chartRight-chartLeft)*float64(i)/3, text})
	}
	return c
}

// axisSpan writes a span of time as short as it can be.
func axisSpan(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return strconv.FormatFloat(d.Hours()/24, 'g', 2, 64) + " d"
	case d >= time.Hour:
		return strconv.FormatFloat(d.Hours(), 'g', 2, 64) + " h"
	}
	return strconv.FormatFloat(d.Minutes(), 'g', 2, 64) + " min"
}

// scale returns ticks at 0, at the middle and at the end of an axis that holds a value. Their
// places are shares of the axis.
func scale(top float64) []tick {
	end := 1.0
	for _, step := range []float64{1, 2, 3, 4, 5, 6, 8, 10} {
		end = step * math.Pow(10, math.Floor(math.Log10(max(top, 1))))
		if end >= top {
			break
		}
	}
	return []tick{{0, "0"}, {end / 2, short(end / 2)}, {end, short(end)}}
}

// short writes a number of an axis or a legend.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'f', decimals(v/1e6), 64) + "M"
	case v >= 1e4:
		return strconv.FormatFloat(v/1e3, 'f', decimals(v/1e3), 64) + "k"
	}
	return strconv.FormatFloat(v, 'f', decimals(v), 64)
}

func decimals(v float64) int {
	if v >= 10 || v == math.Trunc(v) {
		return 0
	}
	return 1
}

// last writes the newest value of a line.
func last(values []float64) string {
	for i := len(values) - 1; i >= max(0, len(values)-4); i-- {
		if !math.IsNaN(values[i]) {
			return short(values[i])
		}
	}
	return "—"
}

func (c chart) x(step int) float64 {
	return chartLeft + (chartRight-chartLeft)*(float64(step)+1)/chartSteps
}

// Y returns where a value stands.
func (c chart) Y(value float64) float64 {
	return chartBottom - (chartBottom-chartTop)*value/c.Ticks[len(c.Ticks)-1].At
}

// polyline draws a line, broken where a value is not known.
func (c chart) polyline(values []float64) string {
	var b strings.Builder
	pen := "M"
	for i, v := range values {
		if math.IsNaN(v) {
			pen = "M"
			continue
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", pen, c.x(i), c.Y(v))
		pen = "L"
	}
	return b.String()
}

// area fills what lies between values and those under them; nil is the axis.
func (c chart) area(values, under []float64) string {
	var b strings.Builder
	for from := 0; from < len(values); from++ {
		if math.IsNaN(values[from]) {
			continue
		}
		to := from
		for to+1 < len(values) && !math.IsNaN(values[to+1]) {
			to++
		}
		pen := "M"
		for i := from; i <= to; i++ {
			fmt.Fprintf(&b, "%s%.1f %.1f", pen, c.x(i), c.Y(values[i]))
			pen = "L"
		}
		for i := to; i >= from; i-- {
			low := 0.0
			if under != nil && !math.IsNaN(under[i]) {
				low = under[i]
			}
			fmt.Fprintf(&b, "L%.1f %.1f", c.x(i), c.Y(low))
		}
		b.WriteString("Z")
		from = to
	}
	return b.String()
}

// tell says in words what the chart shows now.
func (c *chart) tell() {
	texts := make([]string, len(c.Legend))
	for i, k := range c.Legend {
		texts[i] = human.Clean(k.Name) + " " + k.Now
	}
	c.Says = c.Title + ". Now: " + strings.Join(texts, ", ")
}
