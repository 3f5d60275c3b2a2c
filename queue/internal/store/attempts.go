package store

import (
	"fmt"
	"strings"
	"time"
)

// LastAttempts are the attempts of a queue that ended last: some twenty of them, or those of some ten seconds. Only
// failures set the marks from which they are counted: before the first failure all is 0.
type LastAttempts struct {
	Done, Failed int64
	At           int64  // of the last failure, µs
	Error        string // of that, its beginning
}

// marks are what "failing" in meta says: the counters at two instants, and when the last
// attempt failed. What has ended since the newer mark are the last attempts, if these are enough,
// otherwise what has ended since the older one. Only failures set marks: a success costs nothing.
type marks struct {
	olderDone, olderFailed, newerDone, newerFailed int64
	newer, last                                    int64 // instants of the newer mark and of the last failure
}

// A mark is set so many attempts and so long after the one before. What happened before a
// pause of half an hour is forgotten.
const (
	markAttempts = 20
	markTime     = 10 * time.Second
	markMemory   = 30 * time.Minute
)

// attemptFields are the fields of meta that marks are made of.
var attemptFields = []string{"done", "failed", "failing"}

// readMarks reads marks from the text in meta.
func readMarks(text string) (m marks, known bool) {
	n, _ := fmt.Sscanf(text, "%d %d %d %d %d %d", &m.olderDone, &m.olderFailed, &m.newerDone, &m.newerFailed, &m.newer, &m.last)
	return m, n == 6
}

// String returns the text of the marks.
func (m marks) String() string {
	return fmt.Sprint(m.olderDone, m.olderFailed, m.newerDone, m.newerFailed, m.newer, m.last)
}

// marksAfter returns the marks after one more failure, by what meta said when the failure was read. Two failures at
// once may overwrite each other's marks: these are for people, and a mark more or less changes little.
func marksAfter(meta map[string]string, now int64) string {
	done, failed := number(meta["done"]), number(meta["failed"])
	m, known := readMarks(meta["failing"])
	switch {
	case !known || now-m.last > markMemory.Microseconds():
		m = marks{done, failed, done, failed, now, now}
	case done+failed-m.newerDone-m.newerFailed >= markAttempts && now-m.newer >= markTime.Microseconds():
		m = marks{m.newerDone, m.newerFailed, done, failed, now, now}
	}
	m.last = now
	return m.String()
}

// readLast reads the last attempts from the fields of meta.
func readLast(meta map[string]string) LastAttempts {
	m, known := readMarks(meta["failing"])
	if !known {
		return LastAttempts{}
	}
	all := readCounts(meta)
	if all.Done+all.Failed-m.newerDone-m.newerFailed >= markAttempts { // failures at once see each other's counts late
		m.olderDone, m.olderFailed = m.newerDone, m.newerFailed
	}
	return LastAttempts{
		Done: all.Done - m.olderDone, Failed: all.Failed - m.olderFailed, At: m.last, Error: strings.ToValidUTF8(meta["error"], ""),
	}
}
