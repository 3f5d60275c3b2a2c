package envelope

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// A digest is a job made of several, its members (docs/adr/0015). Its envelope has theirs as options, and beside them what
// the queue remembers of the digest: failures, instants, the last error. All else is derived when it is read: type, payload
// and whatever the handler is told are those of the newest member; costs are the largest; the end of the handler's context
// is the last. So an offer adds a member by writing that member alone.
//
// While a digest is open its members are values of a hash, and one more says what they have in common (its record):
// "<stamp> <changes> <due> <costs>". The stamp is that of the offer which began the digest; changes is how often a member had
// other costs than the one before; due is when the digest comes into its lane, in µs, or 0 for at once. Of a digest that is
// closed its envelope keeps the stamp and due.

// A DigestName says which digest a stub in a lane stands for, and where its members are. It is written like a collapse key,
// behind a zero byte.
type DigestName struct {
	Stamp string // of the offer that began it
	Place string // its lane and its key, as they stand in the key of its members
}

// DigestPlace returns the place of the open digest of a key in a lane: its priority, its label, and behind a space the key.
func DigestPlace(lane Lane, key string) string {
	return strconv.Itoa(lane.Priority) + lane.Label + " " + key
}

// Key returns the digest key.
func (n DigestName) Key() string { _, key, _ := strings.Cut(n.Place, " "); return key }

// String returns the name as it stands in a stub, behind "=".
func (n DigestName) String() string { return "\x00" + n.Stamp + n.Place }

// ParseDigest reads what stands in a stub behind "=": false if that is a collapse key.
func ParseDigest(fold string) (n DigestName, is bool) {
	if len(fold) <= 1+StampLen || fold[0] != 0 {
		return n, false
	}
	_, is = readStamp(fold[1 : 1+StampLen])
	return DigestName{fold[1 : 1+StampLen], fold[1+StampLen:]}, is
}

// FoldName returns the name of a collapse key, as it stands in stubs and among the jobs under such keys: the key itself. A
// zero byte at its beginning is doubled, so that no digest has that name.
func FoldName(collapse string) string {
	if strings.HasPrefix(collapse, "\x00") {
		return "\x00" + collapse
	}
	return collapse
}

// JoinDigest returns the envelope of an open digest from its record and its members. Scripts write those of closed ones.
func JoinDigest(record string, members []string) string {
	b := append([]byte(nil), record[:min(len(record), StampLen)]...)
	b = appendText(b, tagDigest, record[min(len(record), StampLen+1):])
	for _, member := range members {
		b = appendOption(b, tagMember, []byte(member))
	}
	return string(append(b, tagEnd, 0))
}

// Costing returns what a member costs as the record of its digest says it. Equal texts are equal costs.
func (e *Envelope) Costing() string {
	b := strconv.AppendInt(nil, int64(e.Cost), 10)
	for _, unit := range names(e.Costs) {
		b = strconv.AppendInt(append(append(append(b, ' '), unit...), '='), int64(e.Costs[unit]), 10)
	}
	return string(b)
}

// Record returns the record of the digest that the envelope is, while it is open; "" for any other job.
func (e *Envelope) Record() string {
	if !strings.Contains(e.digest, " ") {
		return ""
	}
	return e.Stamp + " " + e.digest
}

// due returns when the digest was due.
func (e *Envelope) due() (at int64) {
	text := e.digest
	if words := strings.SplitN(text, " ", 3); len(words) == 3 {
		text = words[1]
	}
	at, _ = strconv.ParseInt(text, 10, 64)
	return at
}

// Parts returns the jobs that are accounted for by themselves: the members of a digest, or the job.
func (e *Envelope) Parts() []*Envelope {
	if len(e.Members) > 0 {
		return e.Members
	}
	return []*Envelope{e}
}

// IDs returns the callers' own IDs of its parts.
func (e *Envelope) IDs() (ids []string) {
	for _, part := range e.Parts() {
		if part.ID != "" {
			ids = append(ids, part.ID)
		}
	}
	return ids
}

// Without returns the digest without some of its members. At least one is left.
func (e *Envelope) Without(leaves func(*Envelope) bool) *Envelope {
	left := *e
	left.Members = slices.DeleteFunc(slices.Clone(e.Members), leaves)
	left.derive()
	return &left
}

// derive sets what follows from the members.
func (e *Envelope) derive() {
	slices.SortFunc(e.Members, func(a, b *Envelope) int { return cmp.Compare(a.Stamp, b.Stamp) })
	newest := e.Members[len(e.Members)-1]
	e.Type, e.Payload, e.Headers, e.Keys, e.Timeout = newest.Type, newest.Payload, newest.Headers, newest.Keys, newest.Timeout
	e.MaxAttempts, e.DigestKey, e.Cost, e.Costs, e.Until = newest.MaxAttempts, newest.DigestKey, 1, nil, newest.Until
	if e.Priority == Normal {
		e.Priority = newest.Priority
	}
	for _, m := range e.Members {
		e.Cost = max(e.Cost, m.Cost)
		if e.Until = max(e.Until, m.Until); m.Until == 0 {
			e.Until = 0
		}
		for unit, n := range m.Costs {
			if e.Costs == nil {
				e.Costs = make(map[string]int)
			}
			e.Costs[unit] = max(e.Costs[unit], n)
		}
	}
	e.NotBefore = e.due()
}
