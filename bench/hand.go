package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

// A hand is a worker in a process of its own, which tells when it began and when its jobs
// start, by its own clock.
type hand struct {
	*child
	mu     sync.Mutex
	began  time.Time
	starts []time.Time
}

func startHand(addr string) (*hand, error) {
	c, err := startChild(role{Name: "hand", Redis: addr})
	if err != nil {
		return nil, err
	}
	h := &hand{child: c}
	if h.began, err = h.hearInstant(); err != nil {
		c.Kill()
		return nil, err
	}
	go h.listen()
	return h, nil
}

// listen notes the starts until the process ends.
func (h *hand) listen() {
	for {
		at, err := h.hearInstant()
		if err != nil {
			return
		}
		h.mu.Lock()
		h.starts = append(h.starts, at)
		h.mu.Unlock()
	}
}

func (h *hand) hearInstant() (time.Time, error) {
	line, err := h.hear()
	if err != nil {
		return time.Time{}, err
	}
	ns, err := strconv.ParseInt(line, 10, 64)
	return time.Unix(0, ns), err
}

// is reports whether a worker that names its host and process is this one.
func (h *hand) is(host string) bool {
	return strings.HasSuffix(host, fmt.Sprint("/", h.cmd.Process.Pid))
}

// playHand is the life of a hand.
func playHand(ctx context.Context, r role) error {
	var mu sync.Mutex
	say := func() {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(time.Now().UnixNano())
	}
	say()
	stop, err := (&bench{}).startWorkers(ctx, fleetOn(r.Redis, 1), asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		say()
		return nil
	}))
	if err != nil {
		return err
	}
	<-ctx.Done()
	return stop()
}

// gather returns the starts of all, in their order.
func gather(all []*hand) (starts []time.Time) {
	for _, h := range all {
		h.mu.Lock()
		starts = append(starts, h.starts...)
		h.mu.Unlock()
	}
	slices.SortFunc(starts, time.Time.Compare)
	return starts
}

// longest returns the longest time without starts from an instant to another. The starts are
// in their order.
func longest(starts []time.Time, from, to time.Time) (most time.Duration) {
	last := from
	for _, at := range starts {
		if at.After(from) && at.Before(to) {
			most, last = max(most, at.Sub(last)), at
		}
	}
	return max(most, to.Sub(last))
}
