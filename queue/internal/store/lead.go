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

// A Term is a time of leadership.
type Term struct {
	Reading
	Token    string // "" if another worker leads
	Till     int64  // when the leader's lease ends
	Seq      int64  // of the last commit
	Changes  int64
	Policies int64 // version
	Notice   string
}

// Lead makes the worker the leader if nobody is. With the token of its present term it
// leads on under a new one, so that nothing sent under the old one can happen any more. That may be asked again.
func (s *Store) Lead(ctx context.Context, worker string, lease time.Duration, token string) (Term, error) {
	asked := time.Now()
	reply := readFields(s.run(ctx, "lead", []string{s.key.Meta()}, Schema, worker, lease.Microseconds(), token), 7)
	return Term{
		Reading: Reading{reply.int(0), asked, time.Now()}, Token: reply.text(1), Till: reply.int(2), Seq: reply.int(3),
		Changes: reply.int(4), Policies: reply.int(5), Notice: reply.text(6),
	}, reply.err
}

// Resign ends a term and tells a successor, if there is one. What was sent under the term's
// token can happen no more.
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
