package simulate

import (
	"fmt"
	"strings"
	"time"
)

// The size of the picture, where in it the lines are, and of how many steps they have.
const (
	width, height = 860, 320
	left, right   = 70, 840
	top, bottom   = 40, 280
	steps         = 400
)

// Picture draws as SVG how many jobs wait, from the first offer to the last start, under the
// policies before and after.
func (a Answer) Picture() string {
	begin, end := a.span()
	var curves [2][]int
	most := 1
	for i, jobs := range a.runs {
		curves[i] = waiting(jobs, begin, end)
		for _, n := range curves[i] {
			most = max(most, n)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`, width, height)
	fmt.Fprintf(&b, `<title>Waiting jobs under both policies</title><rect width="%d" height="%d" fill="#fff"/>`, width, height)
	fmt.Fprintf(&b, `<text x="%d" y="22" fill="#222">Waiting jobs: <tspan fill="#888">before</tspan>, <tspan fill="#1668b8">after</tspan></text>`, left)
	for _, n := range []int{0, most} {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ccc"/><text x="%d" y="%.1f" text-anchor="end" fill="#555">%d</text>`, left, y(n, most), right, left-8, y(n, most)+4, n)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#555">%s</text>`, left, bottom+22, begin.UTC().Format(time.DateTime))
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end" fill="#555">%s</text>`, right, bottom+22, end.UTC().Format(time.DateTime))
	for i, colour := range []string{"#888", "#1668b8"} {
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`, line(curves[i], most), colour)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// span is the time that something waits.
func (a Answer) span() (begin, end time.Time) {
	for _, jobs := range a.runs {
		for _, j := range jobs {
			if begin.IsZero() || j.At.Before(begin) {
				begin = j.At
			}
			for _, at := range []time.Time{j.At, j.Slot} {
				if at.After(end) {
					end = at
				}
			}
		}
	}
	return begin, end
}

// waiting counts the jobs that wait at each step. A job that is dropped does not wait.
func waiting(jobs []Result, begin, end time.Time) []int {
	step := max(1, end.Sub(begin)/steps)
	at := func(t time.Time) int { return min(steps, max(0, int(t.Sub(begin)/step))) }
	counts := make([]int, steps+2)
	for _, j := range jobs {
		if j.Reason == "" {
			counts[at(j.At)]++
			counts[at(j.Slot)]--
		}
	}
	for i := 1; i <= steps; i++ {
		counts[i] += counts[i-1]
	}
	return counts[:steps+1]
}

func y(n, most int) float64 { return bottom - (bottom-top)*float64(n)/float64(most) }

func line(counts []int, most int) string {
	var b strings.Builder
	pen := "M"
	for i, n := range counts {
		fmt.Fprintf(&b, "%s%.1f %.1f", pen, left+(right-left)*float64(i)/steps, y(n, most))
		pen = "L"
	}
	return b.String()
}
