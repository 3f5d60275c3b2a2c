package queue

import (
	"errors"
	"fmt"
	"strings"
)

// All keys of a queue begin with its prefix and so share one hash slot:
//
//	wc:{q}:due                      zset   tenant → lower bound of its next slot, µs
//	wc:{q}:lanes:<tenant>[:high|:low]      zset   user → lower bound of the lane's next slot, µs
//	wc:{q}:lane:<tenant>:<user>[:high|:low] list  envelopes, oldest first
//	wc:{q}:oldest:<tenant>          zset   priority and user → offer of the lane's first job, µs
//	wc:{q}:fold:<tenant>:<user>     hash   collapse key → envelope
//	wc:{q}:state:<scope>            string what a subject's rules remember, see throttle/lua/state.lua
//	wc:{q}:tenant:<tenant>          hash   counters, priorities in use
//	wc:{q}:later                    zset   "tenant:user envelope" → not before, µs
//	wc:{q}:policies                 hash   compiled rules, see policy.go
//	wc:{q}:running                  hash   token → "slot tenant:user envelope"
//	wc:{q}:leases                   zset   token → lease expiry, µs
//	wc:{q}:drops, wc:{q}:dead       stream dropped jobs with reasons, exhausted jobs
//	wc:{q}:id:<id>                  string a caller's own ID, for a day
//	wc:{q}:batch:<name>             string receipts of an offered batch
//	wc:{q}:wake                     list   an entry for each worker to be woken
//	wc:{q}:paused                   zset   scope → until when, µs
//	wc:{q}:last:<worker>            string its last pull and what that took
//	wc:{q}:blocked                  hash   rule → how long it kept jobs waiting, µs
//	wc:{q}:shadowed                 hash   shadow rule → starts that it would not have let be
//	wc:{q}:pulse                    hash   last pull, amnesty, who watches until when, swept version
//	wc:{q}:offered                  string the instant that the next offered job may have, µs
//	wc:{q}:stats, :seq              counters
//
// A scope is q, t:<tenant> or u:<tenant>:<user>. Tenants and users stand in keys escaped.
func prefix(queue string) string { return "wc:{" + queue + "}:" }

// ErrInvalidQueue is returned when a queue's name cannot be part of a key.
var ErrInvalidQueue = errors.New("queue: invalid queue name")

func checkQueue(name string) error {
	if name == "" || len(name) > 128 || strings.ContainsAny(name, "{}: \n\r\t\x00") {
		return fmt.Errorf("%w: %q; 1 to 128 bytes without braces, colons or white space", ErrInvalidQueue, name)
	}
	return nil
}

// escape writes a name so that it holds no colon and no space: they separate names in
// keys and words in envelopes. No two names are escaped alike.
func escape(name string) string {
	if !strings.ContainsAny(name, "%: ") {
		return name
	}
	return escaper.Replace(name)
}

func unescape(name string) string {
	if !strings.Contains(name, "%") {
		return name
	}
	return unescaper.Replace(name)
}

var (
	escaper   = strings.NewReplacer("%", "%25", ":", "%3A", " ", "%20")
	unescaper = strings.NewReplacer("%25", "%", "%3A", ":", "%20", " ")
)
