package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// A board shows the schools while the story goes on: on a terminal a table that is
// drawn again and again, elsewhere a few lines every now and then.
type board struct {
	out   io.Writer
	story *story
	live  bool          // the output is a terminal
	every time.Duration // between two frames

	mu      sync.Mutex // the producers speak while frames are drawn
	drawn   int        // lines of the frame that is on the screen
	samples []sample   // those of the last two seconds, for the rates
}

// A sample is how many jobs had been started at some time.
type sample struct {
	at      time.Time
	started map[string]int // by school
}

func newBoard(out io.Writer, s *story) *board {
	b := &board{out: out, story: s, every: 3 * time.Second}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		b.live, b.every = true, 200*time.Millisecond
	}
	return b
}

// open introduces the schools.
func (b *board) open() {
	fmt.Fprintf(b.out, "Push notifications for three schools, through one queue and %d workers.\n", workers)
	fmt.Fprintf(b.out, "TIME IS SCALED: 1 s here stands for %d s at school, so a minute takes %g s.\n\n", speed, here(time.Minute).Seconds())
	for _, s := range b.story.schools {
		fmt.Fprintf(b.out, "  %-8s%-20s%s\n", s.name, s.about, s.terms())
	}
	for i, l := range everyUser() {
		who := ""
		if i == 0 {
			who = "every teacher and parent"
		}
		fmt.Fprintf(b.out, "  %-28s%s → %s\n", who, l.says, l.rule)
	}
	fmt.Fprintln(b.out)
}

// run draws frames until ctx ends.
func (b *board) run(ctx context.Context) error {
	tick := time.NewTicker(b.every)
	defer tick.Stop()
	for {
		if err := b.frame(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// say writes down what happens, above the table.
func (b *board) say(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.erase()
	fmt.Fprintf(b.out, "%5.1f s  %s\n", time.Since(b.story.began).Seconds(), what)
}

// close leaves the screen to others.
func (b *board) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.erase()
	fmt.Fprintf(b.out, "%5.1f s  everything that was offered has been started or dropped, or waits for a morning\n", time.Since(b.story.began).Seconds())
}

// erase takes the last frame off the screen.
func (b *board) erase() {
	if b.live && b.drawn > 0 {
		fmt.Fprintf(b.out, "\x1b[%dA\x1b[J", b.drawn)
	}
	b.drawn = 0
}

// frame draws the state of the schools.
func (b *board) frame(ctx context.Context) error {
	lines := []string{"", fmt.Sprintf("           %-8s%9s%9s%10s%9s%12s", "", "waiting", "at once", "deferred", "dropped", "rate now")}
	if !b.live {
		lines = lines[1:]
	}
	tallies := b.story.journal.tallies()
	rates := b.rates(tallies)
	for _, s := range b.story.schools {
		tenant, err := b.story.inspector.Tenant(ctx, s.name)
		if err != nil {
			return err
		}
		t := tallies[s.name]
		lines = append(lines, fmt.Sprintf("           %-8s%9s%9s%10s%9s%8.1f/s of %3d/s %s", s.name, thousands(int(tenant.Waiting)),
			thousands(t.atOnce), thousands(t.deferred), thousands(int(tenant.Dropped)),
			rates[s.name], s.perSecond(), bar(rates[s.name]/float64(s.perSecond()))))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.erase()
	at := fmt.Sprintf("%5.1f s", time.Since(b.story.began).Seconds())
	lines[0] = strings.Replace(lines[0], strings.Repeat(" ", len(at)), at, 1)
	if b.live {
		lines[0] = at
	}
	for _, line := range lines {
		fmt.Fprintln(b.out, strings.TrimRight(line, " "))
	}
	b.drawn = len(lines)
	return nil
}

// rates returns how many jobs a second each school has started in the last two seconds.
func (b *board) rates(now map[string]tally) map[string]float64 {
	latest := sample{at: time.Now(), started: make(map[string]int)}
	for name, t := range now {
		latest.started[name] = t.atOnce + t.deferred
	}
	b.samples = append(b.samples, latest)
	for len(b.samples) > 2 && latest.at.Sub(b.samples[1].at) >= 2*time.Second {
		b.samples = b.samples[1:]
	}
	first, rates := b.samples[0], make(map[string]float64)
	if span := latest.at.Sub(first.at).Seconds(); span > 0 {
		for name, n := range latest.started {
			rates[name] = float64(n-first.started[name]) / span
		}
	}
	return rates
}

// bar draws a share of 1 in ten cells.
func bar(share float64) string {
	full := min(10, int(10*share+0.5))
	return strings.Repeat("█", full) + strings.Repeat("░", 10-full)
}

// thousands writes 2400 as 2,400.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
