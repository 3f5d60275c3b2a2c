package runner

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// Users and limits by name may have a capacity: so many of their jobs wait, and the door refuses others. Which jobs those are
// says the label of their lane. The judge adds up lanes by their keys, and reads labels itself.

// room draws a capacity; 0 for none.
func (w *world) room() int {
	if !w.rooms || !w.chance(3) {
		return 0
	}
	return oneOf(w, 1, 4, 10, 30)
}

// bounded lets a user have a capacity.
func (w *world) bounded(c code) code {
	c.room = w.room()
	return c
}

// A backlog is what waits of a user or of a limit by name that has a capacity.
type backlog struct {
	scope string
	room  int
}

// backlogs returns those that count a job.
func (c codex) backlogs(t *task) (all []backlog) {
	if user := c.userOf(t.lane); user.room > 0 {
		all = append(all, backlog{scopesOf(t.lane)[2], user.room})
	}
	for _, charge := range c.charges(t)[3:] {
		if limit, _ := c.limitOf(charge.scope); limit.room > 0 {
			all = append(all, backlog{charge.scope, limit.room})
		}
	}
	return all
}

// userOf returns what limits the user of a lane.
func (c codex) userOf(l envelope.Lane) code {
	n := -1
	if fmt.Sscanf(l.Tenant, "t%d", &n); n < 0 || n >= len(c.users) {
		return code{}
	}
	return c.users[n]
}

// bound names the backlogs of a job in an offer.
func (d *draft) bound(o *store.Offer, c codex) {
	d.job.Subjects = nil
	for _, b := range c.backlogs(d.t) {
		n := slices.IndexFunc(o.Subjects, func(s store.OfferSubject) bool { return s.Scope == b.scope })
		if n < 0 {
			n = len(o.Subjects)
			s := store.OfferSubject{Scope: b.scope, Capacity: b.room, Rule: b.scope}
			if strings.HasPrefix(b.scope, "u:") {
				s.Plain = envelope.PlainLanes(d.t.lane.Tenant, d.t.lane.User)
			}
			o.Subjects = append(o.Subjects, s)
		}
		d.job.Subjects = append(d.job.Subjects, n)
	}
}

// counted returns the scopes whose backlogs count the jobs of a lane with that label.
func counted(tenant, user, label string) (scopes []string) {
	for part := range strings.SplitSeq(label, "&") {
		name, counts := strings.CutPrefix(part, "+")
		switch {
		case part == "+user":
			scopes = append(scopes, "u:"+tenant+":"+user)
		case counts:
			name, values, keyed := strings.Cut(name, "=")
			scope := statute{name: name}.scope(nil)
			if keyed {
				plain := strings.NewReplacer("%25", "%", "%3A", ":", "%20", " ", "%7C", "|", "%26", "&", "%3D", "=", "%2C", ",")
				scope = statute{name: name}.scope(each(strings.Split(values, ","), plain))
			}
			scopes = append(scopes, scope)
		}
	}
	return scopes
}

// waiting returns how many jobs wait at most that a backlog counts: those of whose starts the judge knows nothing. A job that was
// given to a worker, and came back before it started, waits in the lane that the policies of that time give it.
func (j *judge) waiting(b backlog) (n int) {
	counts := func(lane envelope.Lane) bool {
		return scopesOf(lane)[2] == b.scope || slices.Contains(counted(lane.Tenant, lane.User, lane.Label), b.scope)
	}
	for lane, tasks := range j.lanes {
		for _, t := range tasks {
			back := lane
			back.Label = j.codex.label(t)
			if (t.state == waits || t.at != nil && t.at.h.lost) && (counts(lane) || counts(back)) {
				n++
			}
		}
	}
	return n
}

// crowds returns how many jobs wait that the backlogs of an offer count.
func (j *judge) crowds(o store.Offer) map[string]int {
	all := make(map[string]int)
	for _, s := range o.Subjects {
		all[s.Scope] = j.waiting(backlog{s.Scope, s.Capacity})
	}
	return all
}

// checkRoom asks of a job that was refused whether the backlog was full that the receipt names. Crowds are those before the
// offer, to which it adds what the offer brings.
func (j *judge) checkRoom(d *draft, o store.Offer, r store.OfferReceipt, crowds map[string]int) {
	if r.Status == store.StatusAccepted {
		for _, n := range d.job.Subjects {
			crowds[o.Subjects[n].Scope]++
		}
	}
	if r.Reason != "full" || j.miscounted || !j.quiet(clockNow()) {
		return
	}
	for _, n := range d.job.Subjects {
		if s := o.Subjects[n]; s.Scope == r.Rule {
			if crowds[s.Scope] < s.Capacity {
				j.fail(d.t, "%s finds no room in %s, where %d wait and %d may", d.t, s.Scope, crowds[s.Scope], s.Capacity)
			}
			return
		}
	}
	j.fail(d.t, "%s finds no room in %q, which does not count it", d.t, r.Rule)
}

// addUp compares what Redis says of backlogs with the jobs in its lanes.
func (w *world) addUp() {
	const script = `local lanes = {}
		for _, key in ipairs(redis.call('KEYS', 'wc:{q}:lane:*')) do
			local fine, n = pcall(redis.call, 'LLEN', key)
			lanes[#lanes + 1], lanes[#lanes + 2] = key, tostring(fine and n or 0)
		end
		return {lanes, redis.call('ZRANGE', 'wc:{q}:backlogs', 0, -1, 'WITHSCORES')}`
	w.mu.Lock()
	miscounted := w.judge.miscounted
	w.mu.Unlock()
	if miscounted {
		return
	}
	reply, err := redis.NewScript(script).Eval(w.ctx(), w.client, []string{"wc:{q}:backlogs"}).Slice()
	if err != nil {
		w.t.Errorf("%s: %v", w.name, err)
		return
	}
	want := make(map[string]int)
	for key, n := range numbers(reply[0]) {
		words := strings.SplitN(strings.TrimPrefix(key, "wc:{q}:lane:"), ":", 3) // tenant, member, priority
		user, label, _ := strings.Cut(words[1], "|")
		for _, scope := range counted(words[0], user, label) {
			want[scope] += n
		}
	}
	if got := numbers(reply[1]); !maps.Equal(got, want) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.fail("", "", "the backlogs are %v, and their lanes have %v", got, want)
	}
}

// numbers reads names and numbers in turn.
func numbers(reply any) map[string]int {
	all, words := make(map[string]int), reply.([]any)
	for i := 0; i < len(words); i += 2 {
		all[words[i].(string)], _ = strconv.Atoi(words[i+1].(string))
	}
	return all
}
