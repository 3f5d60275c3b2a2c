package watch

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/queue"
)

// How many keys are shown of a limit whose policies ask for that.
const (
	otherKeys = 100  // that have labels, beside those that the policies name
	keysRead  = 1000 // of each limit, at most
)

// A limitKeys chooses which keys of a limit by name have labels: those that its policies name in each, and the first others
// that jobs wait for or run. A key that has one keeps it as long as the program runs, so that there are never more.
type limitKeys struct{ others map[string]bool }

// admits reports whether a key of a limit has a label.
func (k *limitKeys) admits(of queue.Limit, key string) bool {
	if !utf8.ValidString(key) { // a label is text
		return false
	}
	each := key
	if len(of.Key) == 1 {
		each = strings.Join(limits.SplitKey(key), "")
	}
	if _, named := of.Each[each]; named || k.others[key] {
		return true
	}
	if len(k.others) == otherKeys {
		return false
	}
	k.others[key] = true
	return true
}

// detailed returns the limits whose policies ask for their keys.
func detailed(all map[string]queue.Limit) map[string]queue.Limit {
	var asked map[string]queue.Limit
	for name, l := range all {
		if l.Detailed {
			if asked == nil {
				asked = make(map[string]queue.Limit)
			}
			asked[name] = l
		}
	}
	return asked
}

// readLimits adds the metrics of limits by name. Without such limits it reads nothing.
func (c *Collector) readLimits(ctx context.Context, w *Watcher, p queue.PolicyVersion) error {
	all := p.Policies.Limits
	if len(all) == 0 {
		return nil
	}
	pauses, err := w.Pauses(ctx)
	if err != nil {
		return err
	}
	var overrides []queue.Override
	if len(p.Overrides) > 0 { // some of them may have ended
		if overrides, err = w.Overrides(ctx); err != nil {
			return err
		}
	}
	if err := c.readKeys(ctx, w, detailed(all)); err != nil {
		return err
	}
	paused, overridden := make(map[string]int), make(map[string]int)
	for _, p := range pauses {
		if p.Scope == queue.ScopeLimit {
			paused[p.Limit]++
		}
	}
	for _, o := range overrides {
		overridden[o.Limit]++
	}
	for name := range all {
		for desc, n := range map[*prometheus.Desc]int{c.descs.pausedKey: paused[name], c.descs.overrides: overridden[name]} {
			c.last = append(c.last, prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), w.root.Queue, name))
		}
	}
	return nil
}

// readKeys adds the metrics of the keys of limits whose policies ask for that. Without such limits it reads nothing.
func (c *Collector) readKeys(ctx context.Context, w *Watcher, asked map[string]queue.Limit) error {
	if len(asked) == 0 {
		return nil
	}
	now, err := w.Limits(ctx, keysRead)
	for _, l := range now.Limits {
		of, is := asked[l.Name]
		if !is {
			continue
		}
		at := [2]string{w.root.Queue, l.Name}
		if c.keys[at] == nil {
			c.keys[at] = &limitKeys{make(map[string]bool)}
		}
		for _, k := range l.Keys {
			if !c.keys[at].admits(of, k.Key) {
				continue
			}
			for desc, value := range map[*prometheus.Desc]float64{
				c.descs.keyWaiting: float64(k.Waiting), c.descs.keyRunning: float64(k.Running), c.descs.keyFull: k.Full,
			} {
				c.last = append(c.last, prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, w.root.Queue, l.Name, k.Key))
			}
		}
	}
	return err
}
