package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/senders"
	"github.com/waterclock/waterclock/notify"
)

// yours are devices of your own, which take the place of the busy teacher's. They are
// behind a real provider, where nothing can be measured: so there is a log of deliveries,
// with every attempt and what was answered.
type yours struct {
	provider string
	sender   senders.Sender
	targets  []notify.Target
	give     func(up error) // ends the story

	mu         sync.Mutex
	deliveries []delivery
}

// A delivery is an attempt to bring a message to one of your devices.
type delivery struct {
	n           int // the message
	device      int
	from, until time.Time
	outcome     notify.Outcome
}

// bring makes your devices those of the busy teacher.
func (p *providers) bring(o options, rdb *redis.Client) error {
	targets, err := readTargets(o.targets)
	if err != nil {
		return fmt.Errorf("--%s-targets: %w", o.provider, err)
	}
	sender, err := o.senders.Open(o.provider, rdb)
	if err != nil {
		return err
	}
	p.closers = append(p.closers, sender)
	p.yours = &yours{provider: o.provider, sender: sender, targets: targets}
	p.targets[busySchool+" "+busyTeacher] = targets
	return nil
}

// readTargets reads a file with a target in each line. Errors do not quote it: targets
// are secrets.
func readTargets(name string) (targets []notify.Target, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		to := notify.Target{Token: string(line)}
		if line[0] == '{' {
			if err := json.Unmarshal(line, &to); err != nil {
				return nil, fmt.Errorf("%s, line %d: %w", name, number, err)
			}
		}
		targets = append(targets, to)
	}
	if len(targets) == 0 {
		return nil, fmt.Errorf("%s: no device in it; want one in each line", name)
	}
	return targets, nil
}

// Send makes the attempt and writes it down. What nobody can wait for ends the story.
func (y *yours) Send(ctx context.Context, m notify.Message, to notify.Target) notify.Outcome {
	d := delivery{n: -1, device: slices.Index(y.targets, to), from: time.Now()}
	if n, err := strconv.Atoi(m.Data["n"]); err == nil {
		d.n = n
	}
	d.outcome = y.sender.Send(ctx, m, to)
	d.until = time.Now()
	y.mu.Lock()
	y.deliveries = append(y.deliveries, d)
	y.mu.Unlock()
	switch o := d.outcome; {
	case o.Action == notify.Halt:
		y.give(o.Err)
	case o.After > patience:
		y.give(fmt.Errorf("%w, which asks to wait %v", o.Err, o.After))
	}
	return d.outcome
}

// log returns the deliveries, in order of time.
func (y *yours) log() []delivery {
	y.mu.Lock()
	defer y.mu.Unlock()
	return slices.SortedFunc(slices.Values(y.deliveries), func(a, b delivery) int { return a.from.Compare(b.from) })
}

// rulings are about the log of deliveries.
func (y *yours) rulings() []ruling {
	type copied struct{ n, device int }
	var arrivals []arrival
	var twice, broken, failed []string
	asked, pause := make(map[int]time.Time), make(map[int]time.Time) // by device
	var took []time.Duration
	last := make(map[copied]delivery)
	seen := make(map[int]bool)
	for _, d := range y.log() {
		c := copied{d.n, d.device}
		if last[c].outcome.Action == notify.Done {
			twice = append(twice, fmt.Sprintf("message %d on device %d", d.n, d.device+1))
		}
		last[c] = d
		// What was under way when the answer came cannot be called back.
		if d.from.Sub(asked[d.device]) > onTheWay && d.from.Before(pause[d.device]) {
			broken = append(broken, fmt.Sprintf("%v too early", pause[d.device].Sub(d.from)))
		}
		switch d.outcome.Action {
		case notify.Done:
			took = append(took, d.until.Sub(d.from))
			if !seen[d.n] {
				seen[d.n] = true
				arrivals = append(arrivals, arrival{d.n, busySchool, busyTeacher, d.from})
			}
		case notify.Defer, notify.Pause:
			asked[d.device], pause[d.device] = d.until, d.until.Add(d.outcome.After)
		}
	}
	for c, d := range last {
		if d.outcome.Action != notify.Done {
			failed = append(failed, fmt.Sprintf("message %d on device %d: %v", c.n, c.device+1, d.outcome.Err))
		}
	}
	slices.Sort(failed)
	return append(userLimits(y.provider, arrivals),
		ruling{y.provider, "no message twice on a device", fmt.Sprintf("%s messages delivered", thousands(len(arrivals))), twice},
		ruling{y.provider, "nothing while it asks to wait", fmt.Sprintf("%s requests in all", thousands(len(y.log()))), broken},
		ruling{y.provider, "every message taken in the end", fmt.Sprintf("after %s in the median", span(quantile(took, 0.5))), failed},
	)
}
