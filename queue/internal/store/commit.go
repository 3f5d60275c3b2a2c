package store

import (
	"slices"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A leader decides for many tenants at once, and all of that has to last or none of it: a job that left its lane and
// became no claim would be lost, and one that became a claim and stayed in its lane would run twice. So a commit is one
// script, which Redis runs alone.
//
// What the methods of a commit collect goes into lists, which the script (commit.lua) works through in this order:
//
//	kinds    keys of the queue itself have their types
//	takes    the first jobs of lanes are those that are to leave
//	checks   whatever else has to be so
//	         nothing is written up to here: if anything differs, the reply says what
//	folds    jobs under collapse keys become claims
//	claims   claims are made and ended; then the jobs of the takes leave their lanes
//	writes   jobs come into lanes: nothing of this can fail by then
//	memo     what rules remember
//	acks     claims end, and count as done if they were held
//	told     messages for workers
//	extra    the rest: bounds, counters, records; one that fails is named in the reply
//	fill     lanes are read whose first jobs have left, or which were asked for
//	look     what else is read
//
// Claims are made before jobs leave their lanes: where a claim cannot be written no job has left.
//
// Commands on the same key are collected, and written together: all claims of a worker, all bounds of an index
// that are lowered to the same instant, all messages for a worker.

// A Commit is what a leader has decided and wants to last: all of it or nothing. Make it
// with [Store.NewCommit], say what it does with its methods, send it with [Store.Send]. Its methods ask Redis
// nothing. One goroutine uses it. Those about pauses, IDs, records and dead workers stand in pauses.go, ids.go, records.go and
// reap.go.
//
// Methods that check something return the number of the check. Where the check fails the commit
// does nothing, and the [DiffersError] has that number. The caller keeps the number if it can learn
// something from the failure.
type Commit struct {
	s    *Store
	keys *keyList
	// Keys that the script finds by their places behind those of keys, and not by numbers: of the lanes that
	// jobs leave, in the order of take, and of what rules remember, in the order of memo.
	lanes []string
	state []string

	// The lists of the script.
	sums  list // of counters of the queue
	kinds list // the types that keys of the queue itself must have
	take  list
	check list
	folds list // jobs to claim from under their collapse keys
	claim list // before anything leaves its lane
	write list // fails as a whole
	memo  list // of the states
	acks  list // ends of claims that may be lost
	told  list // messages for the mailboxes of workers
	extra list // each alone
	fill  list
	look  list

	// What is collected by key, and becomes commands of the lists when the commit is sent (gather).
	running   map[string]int    // worker → number of the key of its claims
	claims    map[string][]any  // worker → names of claims and jobs
	ended     map[string][]any  // worker → names of claims
	mailboxes map[string][]byte // worker → what it is told
	counters  map[counter]int64
	backlogs  map[string]int64  // scope → by how many more jobs wait in lanes with labels that it counts
	folding   map[Folded]string // what it puts under collapse keys
	lowers    []lowering
	lowered   map[lowering][]any // their members, each after the instant
	seen      map[lowered]bool
	taken     map[Lane]takes
	put       map[Lane]bool
	reads     []reads
	looks     []look
	typed     map[string]bool // keys of the queue whose types are checked
	lanesOf   map[int]Lane    // whose keys a check of types is about
	gathered  bool
}

// NewCommit returns an empty commit. It may be used again after [Commit.Reset].
func (s *Store) NewCommit() *Commit {
	return &Commit{
		s: s, keys: newKeyList(s.key.Meta()), running: make(map[string]int), claims: make(map[string][]any), ended: make(map[string][]any),
		mailboxes: make(map[string][]byte), counters: make(map[counter]int64), backlogs: make(map[string]int64), taken: make(map[Lane]takes), put: make(map[Lane]bool),
		folding: make(map[Folded]string), typed: make(map[string]bool), lanesOf: make(map[int]Lane),
		lowered: make(map[lowering][]any), seen: make(map[lowered]bool),
	}
}

// Reset makes the commit empty, so that its memory is used again. Nobody may wait for its reply any more: the reply is
// read with the looks of the commit.
func (c *Commit) Reset() {
	c.keys.reset(c.s.key.Meta())
	for _, l := range c.lists() {
		clear(l.args)
		l.n, l.args = 0, l.args[:0]
	}
	for _, keys := range []*[]string{&c.lanes, &c.state} {
		clear(*keys)
		*keys = (*keys)[:0]
	}
	clear(c.running)
	clear(c.claims)
	clear(c.ended)
	clear(c.mailboxes)
	clear(c.counters)
	clear(c.backlogs)
	clear(c.folding)
	clear(c.lowered)
	clear(c.seen)
	clear(c.taken)
	clear(c.put)
	clear(c.typed)
	clear(c.lanesOf)
	c.lowers, c.reads, c.looks, c.gathered = c.lowers[:0], c.reads[:0], c.looks[:0], false
}

// A Leaving is an entry that leaves its lane.
type Leaving struct {
	Begin  string // its stamp; all of it, if it is a stub
	Worker string // who claims it; "" if nobody does
	Claim  Claim
}

// Take takes the first entries out of a lane. A commit takes from a lane once. The check fails if the lane does not
// begin with these entries, in this order: a job was purged, or came to the front. Its number is below 0.
func (c *Commit) Take(lane Lane, entries []Leaving) (check int) {
	number := c.take.add(0, len(entries))
	c.lanes = append(c.lanes, c.s.key.Lane(lane))
	c.taken[lane] = takes{number, len(c.take.args) - 2}
	c.wait(lane, -len(entries))
	for _, e := range entries {
		to, claim := 0, ""
		if e.Worker != "" {
			to, claim = c.claimsOf(e.Worker), e.Claim.String()
		}
		c.take.args = append(c.take.args, e.Begin, to, claim)
	}
	return -number
}

// Claim gives a worker a job that comes from no lane: nothing is checked.
func (c *Commit) Claim(worker string, claim Claim, job string) {
	c.claims[worker] = append(c.claims[worker], claim.String(), job)
}

// ClaimFolded gives a worker the job under a collapse key, whichever is there by then: it may have been replaced since
// the leader has read it. If there is none any more no claim is made, and the worker finds none. The check fails if the
// key cannot hold jobs.
func (c *Commit) ClaimFolded(worker string, claim Claim, f Folded) (check int) {
	c.folds.add(c.claimsOf(worker), claim.String(), c.keys.number(c.s.key.Fold(f.Tenant, f.User)), f.Key)
	return c.isA(c.s.key.Fold(f.Tenant, f.User), "hash")
}

// ClaimDigest does so for a digest, whoever is a member by then. The check fails if the record of an open one is not as the
// leader has read it: then a member that costs something else may have joined. The record of a closed one is "".
func (c *Commit) ClaimDigest(worker string, claim Claim, f Folded, record string) {
	c.ClaimFolded(worker, claim, f)
	key, _, _ := c.s.digest(f)
	c.folds.args = append(c.folds.args, c.keys.number(key))
	c.isA(key, "hash")
	if record != "" {
		c.check.add("fold", c.keys.number(key), "", record)
	}
}

// CloseDigest takes a digest out that never runs. The check fails if it is not as it was read: of an open one, with its record
// and so many members, of a closed one that is not there any more.
func (c *Commit) CloseDigest(f Folded, record string, members int) {
	if record == "" {
		name, _ := envelope.ParseDigest(f.Key)
		c.Unfold(f, name.Stamp)
		return
	}
	key, _, _ := c.s.digest(f)
	c.check.add("fold", c.keys.number(key), "", record)
	c.check.add("size", c.keys.number(key), 1+members)
	c.op(&c.extra, "DEL", key)
}

// EndClaim takes a claim from a worker. The check fails if the worker does not have it any more: of a claim that could
// end in two ways, by an ack and by this, one of the two ends has its effects.
func (c *Commit) EndClaim(worker string, claim Claim) int {
	name := claim.String()
	c.ended[worker] = append(c.ended[worker], name)
	return c.check.add("is", "HEXISTS", c.claimsOf(worker), name, 1)
}

// Ack ends claims of the leader's own worker, as [Store.Ack] does, and counts those that were held as done. Those that
// are lost are passed over: a check would refuse the whole commit for one of them.
func (c *Commit) Ack(worker string, claims []Claim) {
	for chunk := range slices.Chunk(claims, mostWords) {
		c.acks.add(c.claimsOf(worker), len(chunk))
		for _, claim := range chunk {
			c.acks.args = append(c.acks.args, claim.String())
		}
	}
}

// Tell puts words into a worker's mailbox. All that a commit tells a worker is one message, see [Words]. The words are
// one of the messages of notice.go and the two that belong to it.
func (c *Commit) Tell(worker string, words ...string) {
	c.mailboxes[worker] = appendWords(c.mailboxes[worker], words)
}

// Put puts a job at the end of its lane, and makes the lane due now. Checks see to it that the keys of the lane can hold the
// job; where one fails, [Commit.Broken] tells the lane.
func (c *Commit) Put(lane Lane, entry string, now int64) {
	c.op(&c.write, "RPUSH", c.s.key.Lane(lane), entry)
	c.holds(lane, now)
}

// PutFirst puts a job at the front of its lane as Put does at the end: behind those at the front that have come back, too, and
// whose places come before.
func (c *Commit) PutFirst(lane Lane, entry string, place envelope.Place, now int64) {
	c.op(&c.write, "FIRST", c.s.key.Lane(lane), entry, place.String(), c.keys.number(c.s.key.Fold(lane.Tenant, lane.User)))
	c.holds(lane, now)
}

// holds notes that a lane has a job more, which makes it due.
func (c *Commit) holds(lane Lane, now int64) {
	c.wait(lane, 1)
	c.Wake(lane, now)
	if !c.put[lane] {
		c.put[lane] = true
		c.lanesOf[c.isA(c.s.key.Lane(lane), "list")] = lane
		c.lanesOf[c.isA(c.s.key.Due(lane.Tenant, lane.Priority), "zset")] = lane
	}
}

// Broken returns the lanes into which the commit puts jobs, and about which one of the failed checks was. Their keys
// may have another type; [Store.Holds] tells.
func (c *Commit) Broken(checks []int) (lanes []Lane) {
	for _, check := range checks {
		if lane, is := c.lanesOf[check]; is {
			lanes = append(lanes, lane)
		}
	}
	return lanes
}

// Wake makes a lane due at an instant, unless it is due before, and adds the lane and its tenant to their indexes if
// they are not there. The counters of a tenant that was out of the index were to expire: they stay.
func (c *Commit) Wake(lane Lane, at int64) {
	c.lower(lowering{c.s.key.Due(lane.Tenant, lane.Priority), false, at}, lane.Member())
	if c.lower(lowering{c.own(c.s.key.Tenants(), "zset"), false, at}, Escape(lane.Tenant)) {
		c.op(&c.extra, "PERSIST", c.s.key.Tenant(lane.Tenant))
	}
}

// Fold keeps a job under its collapse key, where there is none. The check fails if another job is there by now.
func (c *Commit) Fold(f Folded, job string) int {
	c.setFold(f, job)
	return c.into(f, c.is("HEXISTS", c.s.key.Fold(f.Tenant, f.User), f.Key, false))
}

// Refold puts a job in the place of the one of that stamp under its collapse key. The check fails if another one is
// there by now. In the place of a job that this commit has put there itself nothing has to be checked, and Refold
// returns 0.
func (c *Commit) Refold(f Folded, stamp, job string) int {
	_, own := c.folding[f]
	c.setFold(f, job)
	if own {
		return 0
	}
	return c.into(f, c.check.add("fold", c.keys.number(c.s.key.Fold(f.Tenant, f.User)), f.Key, stamp))
}

// into notes that a check is about where a job is put. A collapse key belongs to the user, whatever the priority.
func (c *Commit) into(f Folded, check int) int {
	c.lanesOf[check] = Lane{Tenant: f.Tenant, User: f.User, Priority: envelope.Normal}
	return check
}

// setFold keeps a job under its collapse key, whatever is there.
func (c *Commit) setFold(f Folded, job string) {
	c.folding[f] = job
	c.op(&c.write, "HSET", c.s.key.Fold(f.Tenant, f.User), f.Key, job)
}

// Folding returns the job that this commit puts under a collapse key, "" for none.
func (c *Commit) Folding(f Folded) string { return c.folding[f] }

// Unfold takes the job of that stamp out from under its collapse key. The check fails if it is not there any more:
// a newer job would be dropped in its place.
func (c *Commit) Unfold(f Folded, stamp string) int {
	key := c.s.key.Fold(f.Tenant, f.User)
	c.op(&c.extra, "HDEL", key, f.Key)
	return c.check.add("fold", c.keys.number(key), f.Key, stamp)
}

// Bound notes that a lane's next job does not start before an instant. A lane that has left the index is not added:
// nothing waits there. A leader reads the lane again when that instant comes, and may forget it until then.
func (c *Commit) Bound(lane Lane, at int64) {
	c.op(&c.extra, "ZADD", c.s.key.Due(lane.Tenant, lane.Priority), "XX", at, lane.Member())
}

// Sooner lowers the bound of a lane, if anything waits there: something that held it back was given back.
func (c *Commit) Sooner(lane Lane, at int64) {
	c.lower(lowering{c.s.key.Due(lane.Tenant, lane.Priority), true, at}, lane.Member())
}

// Mature takes a job out of what waits for its time, which has come at an instant. The check fails if it is not there any
// more, since a job matures once, or if its time has moved: that of a digest does.
func (c *Commit) Mature(member string, at int64) int {
	c.op(&c.write, "ZREM", c.own(c.s.key.Later(), "zset"), member)
	return c.check.add("ripe", c.keys.number(c.s.key.Later()), member, at)
}

// State writes what the rules of a scope remember, and lets Redis forget it after so many ms, when it binds
// nobody any more. An empty text deletes it.
func (c *Commit) State(scope, text string, ms int64) {
	c.state = append(c.state, c.s.key.State(scope))
	c.memo.add(ms, text)
}

// Discard deletes a payload that is kept apart.
func (c *Commit) Discard(spilled string) { c.op(&c.extra, "UNLINK", c.s.key.Body(spilled)) }

// Count adds to a counter of a tenant and of the queue; of the queue alone for the tenant
// "". The amounts of a commit are added up first.
func (c *Commit) Count(tenant, name string, by int64) {
	c.counters[counter{"", name}] += by
	if tenant != "" {
		c.counters[counter{tenant, name}] += by
	}
}

// Blame adds to the time that jobs have waited because of a rule, in µs.
func (c *Commit) Blame(rule string, us int64) { c.Count("", blockedBy+rule, us) }

// Object counts a start that a shadow rule would not have allowed.
func (c *Commit) Object(rule string) { c.Count("", shadowedBy+rule, 1) }

// The names of counters of the queue that are about a rule begin so.
const (
	blockedBy  = "blocked:"
	shadowedBy = "shadowed:"
)

// Read reads the first n entries of a lane after all writes of the commit; an empty lane leaves its
// index. The reply has them in [Looks].Heads, in the order of the calls.
func (c *Commit) Read(lane Lane, n int) {
	c.reads = append(c.reads, reads{lane, n})
}

// Empty reports whether the commit does nothing.
func (c *Commit) Empty() bool { return !c.Writes() && len(c.reads)+len(c.looks) == 0 }

// Writes reports whether the commit does more than read and check.
func (c *Commit) Writes() bool {
	return c.folds.n+c.take.n+c.write.n+c.memo.n+c.acks.n+c.extra.n+len(c.claims)+len(c.ended)+len(c.mailboxes)+len(c.counters) > 0
}
