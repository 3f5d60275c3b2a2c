package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress is a bar on a terminal, and nothing anywhere else. The zero value shows
// nothing.
type progress struct{ bar *progressbar.ProgressBar }

// newProgress returns the progress of reading total bytes, -1 if nobody knows how many.
func newProgress(stderr io.Writer, total int64) progress {
	file, ok := stderr.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return progress{}
	}
	return progress{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(stderr),
		progressbar.OptionShowBytes(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetWidth(30),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetDescription("offering"),
	)}
}

// at moves the bar. That it cannot be drawn is no reason to stop.
func (p progress) at(bytes int64, jobs int) {
	if p.bar != nil {
		p.bar.Describe(fmt.Sprintf("offered %d jobs", jobs))
		_ = p.bar.Set64(bytes)
	}
}

// clear takes the bar away, until it moves again.
func (p progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
