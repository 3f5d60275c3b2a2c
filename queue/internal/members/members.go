// Package members says which workers take part in which partition of a queue.
//
// If each of a hundred workers took part in each of sixteen partitions, Redis would hear of nothing but that they live. So a partition has
// [Least] members, and more while its jobs wait for places. Which ones they are every worker finds out by itself, from the names of all
// who live: each worker has a rank in each partition, by a hash of both (rendezvous hashing). A worker that comes or goes changes the
// members of the partitions that it takes part in, and of no others.
//
//	for k := range partitions {
//		takesPart := members.Rank(k, name, alive) < wanted[k]
//	}
package members

import (
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// Least is how many members a partition has, if there are so many workers: one that leads, and two that may take over.
const Least = 3

// Rank returns how many of the workers come before the named one in a partition.
func Rank(partition int, name string, workers []string) (rank int) {
	own := weight(partition, name)
	for _, other := range workers {
		if w := weight(partition, other); w > own || w == own && other < name {
			rank++
		}
	}
	return rank
}

func weight(partition int, worker string) uint64 {
	return xxhash.Sum64String(strconv.Itoa(partition) + "/" + worker)
}

// A Need is how a partition's jobs do for places.
type Need int

const (
	Enough Need = iota // more than half of the places of its members are free
	Busy               // half of them, or more, are taken
	Short              // jobs wait for a place
)

// Wish returns how many members a partition wants that has so many, of so many workers; 0 if it has no wish.
func Wish(need Need, has, workers int) int {
	const more = 4
	switch {
	case need == Short:
		return min(more*has, max(has, workers))
	case need == Busy && has > Least:
		return has
	}
	return 0
}
