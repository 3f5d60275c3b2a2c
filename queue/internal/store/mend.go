package store

import "context"

// The doctor (package examine) repairs keys by changes: what it has read may not be so any more when it writes, and the
// conditions of each step find that out. The change fences: the leader reads the settings before it commits anything
// more.

// A Mend is one step of a repair: its commands are done if its conditions hold, all at one
// instant. In each command the key stands second, behind the command's name.
type Mend struct {
	If []Condition
	Do [][]any
}

// A Condition is a command and the reply that it has to have; that of a command that finds
// nothing is "".
type Condition struct {
	Want    any
	Command []any
}

// Mend makes a repair, in one round trip, and reports which of its steps were done, by their numbers from 0. A step
// without conditions and commands only tells the leader.
func (s *Store) Mend(ctx context.Context, mends []Mend) (done map[int]bool, err error) {
	c := s.newChange()
	c.fences = true
	c.tell(NoticeRepaired, "")
	for _, m := range mends {
		c.always()
		for _, condition := range m.If {
			words := condition.Command
			c.and(condition.Want, words[0].(string), []string{words[1].(string)}, words[2:]...)
		}
		for _, words := range m.Do {
			c.do(words[0].(string), words[1].(string), words[2:]...)
		}
	}
	return c.apply(ctx)
}
