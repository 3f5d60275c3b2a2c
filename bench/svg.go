package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// A canvas is an SVG picture under construction, with a plot inside of margins.
type canvas struct {
	strings.Builder
	width, height            float64
	left, right, top, bottom float64 // margins
}

// style gives a picture its colours, on light pages and on dark ones. The first two
// colours are ours and the rival's.
const style = `<style>
  svg { --paper: #ffffff; --ink: #24292f; --faint: #6e7781; --rule: #d8dee4; --a: #1f6fb2; --b: #c4621a; --c: #5a8f3c; }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #0d1117; --ink: #e6edf3; --faint: #8b949e; --rule: #30363d; --a: #58a6ff; --b: #f0883e; --c: #7ec35e; }
  }
  text { fill: var(--ink); } .faint { fill: var(--faint); } .title { font-size: 16px; font-weight: 600; }
  .rule { stroke: var(--rule); } .axis { stroke: var(--faint); }
  .fa { fill: var(--a); } .fb { fill: var(--b); } .fc { fill: var(--c); } .ink { stroke: var(--ink); }
  .sa, .sb, .sc { fill: none; stroke-width: 2; stroke-linejoin: round; }
  .sa { stroke: var(--a); } .sb { stroke: var(--b); } .sc { stroke: var(--c); }
</style>
`

// colours are the classes of consecutive lines.
func colour(i int) string { return string("abc"[i%3]) }

func newCanvas(width, height float64, title string) *canvas {
	c := &canvas{width: width, height: height, left: 80, right: 30, top: 60, bottom: 60}
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="13">`+"\n", width, height)
	c.WriteString(style)
	fmt.Fprintf(c, `<rect width="%g" height="%g" style="fill: var(--paper)"/>`+"\n", width, height)
	c.text(point{20, 28}, "start", "title", title)
	return c
}

func (c *canvas) end() string {
	c.WriteString("</svg>\n")
	return c.String()
}

// text writes at a place; anchor is start, middle or end.
func (c *canvas) text(at point, anchor, class, text string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" text-anchor="%s" class="%s">%s</text>`+"\n",
		at.x, at.y, anchor, class, html.EscapeString(text))
}

func (c *canvas) line(from, to point, class string) {
	fmt.Fprintf(c, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`+"\n", from.x, from.y, to.x, to.y, class)
}

func (c *canvas) path(class string, points []point) {
	fmt.Fprintf(c, `<path class="%s" d="`, class)
	for i, p := range points {
		command := "L"
		if i == 0 {
			command = "M"
		}
		fmt.Fprintf(c, "%s%.1f %.1f", command, p.x, p.y)
	}
	c.WriteString("\"/>\n")
}

type point struct{ x, y float64 }

// A scale maps values to places along an axis.
type scale struct {
	from, to float64 // places
	curve    func(float64) float64
	low      float64
	high     float64
}

func (s scale) at(v float64) float64 {
	v = min(max(v, s.low), s.high)
	part := (s.curve(v) - s.curve(s.low)) / (s.curve(s.high) - s.curve(s.low))
	return s.from + part*(s.to-s.from)
}

func linear(v float64) float64 { return v }

// across and up return scales along the axes of the plot.
func (c *canvas) across(low, high float64, curve func(float64) float64) scale {
	return scale{from: c.left, to: c.width - c.right, curve: curve, low: low, high: high}
}

func (c *canvas) up(low, high float64, curve func(float64) float64) scale {
	return scale{from: c.height - c.bottom, to: c.top, curve: curve, low: low, high: high}
}

// marksAcross and marksUp draw rules at the ticks, and their labels.
func (c *canvas) marksAcross(s scale, ticks []float64, label func(float64) string, name string) {
	for _, t := range ticks {
		x := s.at(t)
		c.line(point{x, c.top}, point{x, c.height - c.bottom}, "rule")
		c.text(point{x, c.height - c.bottom + 18}, "middle", "faint", label(t))
	}
	c.text(point{(s.from + s.to) / 2, c.height - 16}, "middle", "faint", name)
}

func (c *canvas) marksUp(s scale, ticks []float64, label func(float64) string, name string) {
	for _, t := range ticks {
		y := s.at(t)
		c.line(point{c.left, y}, point{c.width - c.right, y}, "rule")
		c.text(point{c.left - 8, y + 4}, "end", "faint", label(t))
	}
	c.text(point{c.left - 8, c.top - 12}, "end", "faint", name)
}

// legend names the lines, from the right edge to the left.
func (c *canvas) legend(names []string) {
	x := c.width - c.right
	for i := len(names) - 1; i >= 0; i-- {
		x -= 7.2 * float64(len([]rune(names[i])))
		c.text(point{x, 28}, "start", "", names[i])
		fmt.Fprintf(c, `<rect x="%.1f" y="18" width="11" height="11" rx="2" class="f%s"/>`+"\n", x-17, colour(i))
		x -= 36
	}
}

// roundTicks are about n round values from 0 to at least high.
func roundTicks(high float64, n int) (ticks []float64) {
	step := math.Pow(10, math.Floor(math.Log10(high/float64(n))))
	for _, factor := range []float64{1, 2, 5, 10} {
		if high/(step*factor) <= float64(n) {
			step *= factor
			break
		}
	}
	for t := 0.0; t < high+step; t += step {
		ticks = append(ticks, t)
	}
	return ticks
}

// short writes a number with k for thousands and M for millions.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%gM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%gk", v/1e3)
	default:
		return fmt.Sprintf("%g", v)
	}
}
