package store

import (
	"context"
	"time"
)

// One worker leads. The field "leader" of meta holds its token: the number of the term and the worker's name. Every
// commit carries the token and renews the lease, so a leader that does not commit loses its lease, and one that was
// deposed cannot commit. Nobody's clock is asked but that of Redis (lead.lua, commit.lua).
//
// A leader that does not know what became of a commit leads on under a new token. Then nothing that was sent under the
// old one can happen any more, and Seq says what has happened.

// A Term is a time of leadership, as Redis knows it at its beginning. All fields are of one instant.
type Term struct {
	Reading
	Token    string // what commits have to carry; "" if another worker leads
	Till     int64  // when the leader's lease ends, whoever leads
	Seq      int64  // the number of the last commit that has happened
	Changes  int64  // the number of the last change
	Policies int64  // the version of the policies
	Notice   string // the ID of the last notice whose effects were committed, "0" for none
}

// Lead makes the worker the leader if no lease holds, in one round trip. The token is "".
//
// With the token of its present term the worker leads on under a new one, whether its lease holds or not, unless
// another worker has led since. Nothing sent under the old token can happen any more: so Seq says for good which
// commits have happened. A request whose reply was lost may be sent again, and gets the same token.
func (s *Store) Lead(ctx context.Context, worker string, lease time.Duration, token string) (Term, error) {
	asked := time.Now()
	reply := readFields(s.run(ctx, "lead", []string{s.key.Meta()}, Schema, worker, lease.Microseconds(), token), 7)
	return Term{
		Reading: Reading{reply.int(0), asked, time.Now()}, Token: reply.text(1), Till: reply.int(2), Seq: reply.int(3),
		Changes: reply.int(4), Policies: reply.int(5), Notice: reply.text(6),
	}, reply.err
}

// Resign ends a term and tells a successor, if there is one, in one round trip. What was sent under the term's
// token can happen no more. If another worker leads already nothing is done. After an error the lease ends by itself.
func (s *Store) Resign(ctx context.Context, token, successor string) error {
	c := s.newChange()
	c.when(token, "HGET", []string{s.key.Meta()}, "leader")
	c.do("HSET", s.key.Meta(), "till", 0, "leader", "")
	if successor != "" {
		c.do("RPUSH", s.key.Mailbox(successor), MessageLead)
		c.do("PEXPIRE", s.key.Mailbox(successor), time.Minute.Milliseconds())
	}
	_, err := c.apply(ctx)
	return err
}
