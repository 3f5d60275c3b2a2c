package queue

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/waterclock/waterclock/queue/internal/store"
)

// An entry is a [DeadJob.Entry]: where a dead job is. It is the ID of an entry of a stream of Redis, with the number of the partition
// before it where the queue has several: 1763707200000-0, or 3/1763707200000-0.
type entry struct {
	partition  int
	ms, number uint64
}

var entryForm = regexp.MustCompile(`^(?:(\d{1,2})/)?(\d{1,19})-(\d{1,19})$`)

// parseEntry reads an entry; false if it is none of a queue with so many partitions.
func parseEntry(text string, of int) (e entry, ok bool) {
	parts := entryForm.FindStringSubmatch(text)
	if parts == nil || (parts[1] != "") != (of > 1) {
		return e, false
	}
	e.partition, _ = strconv.Atoi(parts[1])
	e.ms, _ = strconv.ParseUint(parts[2], 10, 64)
	e.number, _ = strconv.ParseUint(parts[3], 10, 64)
	return e, e.partition < of
}

// wantEntry is what an entry of such a queue looks like.
func wantEntry(of int) string {
	if of > 1 {
		return "DeadJob.Entry, such as 3/1763707200000-0"
	}
	return "DeadJob.Entry, such as 1763707200000-0"
}

// entryOf returns the entry of a record.
func entryOf(s *store.Store, id string) string {
	if s.Of == 1 {
		return id
	}
	return strconv.Itoa(s.Number) + "/" + id
}

// newest orders entries: those that were written last come first. Of two partitions whose entries are of one instant that with the
// lower number comes first.
func (e entry) newest(other entry) int {
	return cmp.Or(cmp.Compare(other.ms, e.ms), cmp.Compare(other.number, e.number), cmp.Compare(e.partition, other.partition))
}

// before returns the ID before which a partition has the entries that come after this one.
func (e entry) before(partition int) string {
	number := e.number
	if partition > e.partition { // one of the same ID comes after it
		number++
	}
	return fmt.Sprintf("%d-%d", e.ms, number)
}

// entries reads the names of dead jobs, and returns the IDs of each partition's.
func (i *Inspector) entries(ctx context.Context, names []string) (map[int][]string, error) {
	all, err := i.each(ctx)
	if err != nil {
		return nil, err
	}
	ids := make(map[int][]string)
	for k, name := range names {
		e, ok := parseEntry(name, len(all))
		if !ok {
			return nil, fmt.Errorf("%w: entry %q, number %d of %d; want %s", ErrInvalidArgument, name, k+1, len(names), wantEntry(len(all)))
		}
		ids[e.partition] = append(ids[e.partition], fmt.Sprintf("%d-%d", e.ms, e.number))
	}
	return ids, nil
}
