package store

import "context"

// A Mend is one step of a repair: its commands are done if its conditions hold, all at one
// instant. The key of each stands behind its command.
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

// Mend makes a repair and reports which of its steps were done. The leader commits nothing
// more until it has read everything again.
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
