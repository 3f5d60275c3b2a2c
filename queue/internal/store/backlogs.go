package store

import "context"

// Whose backlogs count the jobs of a lane is said by the lane's label ([envelope.Lane.Backlogs]). How many jobs of
// such lanes wait is kept in one sorted set, as long as there are any: a scope that counts none is no member. Whatever puts
// jobs into lanes, or takes them out, counts in the same script.

// Backlogs returns how many jobs the backlogs of scopes count in lanes with labels, in one round trip.
func (s *Store) Backlogs(ctx context.Context, scopes []string) ([]int64, error) {
	lengths := make([]int64, len(scopes))
	if len(scopes) == 0 {
		return lengths, nil
	}
	scores, err := s.client.ZMScore(ctx, s.key.Backlogs(), scopes...).Result()
	for i, score := range scores {
		lengths[i] = int64(score)
	}
	return lengths, err
}

// wait notes that so many more jobs of a lane wait.
func (c *Commit) wait(lane Lane, n int) {
	for _, scope := range lane.Backlogs() {
		c.backlogs[scope] += int64(n)
	}
}

// gatherBacklogs writes by how much backlogs are longer.
func (c *Commit) gatherBacklogs() {
	written := false
	for _, scope := range sortedKeys(c.backlogs) {
		if by := c.backlogs[scope]; by != 0 {
			written = true
			c.op(&c.write, "ZINCRBY", c.own(c.s.key.Backlogs(), "zset"), by, scope)
		}
	}
	if written {
		c.op(&c.write, "ZREMRANGEBYSCORE", c.s.key.Backlogs(), "-inf", 0)
	}
}

// wait notes, with the last step, that so many more jobs of a lane wait.
func (c *change) wait(lane Lane, n int) {
	scopes := lane.Backlogs()
	for _, scope := range scopes {
		c.do("ZINCRBY", c.own(c.s.key.Backlogs(), "zset"), n, scope)
	}
	if len(scopes) > 0 && n < 0 {
		c.do("ZREMRANGEBYSCORE", c.s.key.Backlogs(), "-inf", 0)
	}
}
