package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// A cost is what Redis has spent.
type cost struct {
	commands int64 // those inside of scripts included
	trips    int64 // round trips: times that it read what a client had sent
	cpu      time.Duration
}

func (c cost) since(before cost) cost {
	return cost{c.commands - before.commands, c.trips - before.trips, c.cpu - before.cpu}
}

var (
	callsLine = regexp.MustCompile(`(?m)^cmdstat_[^:]+:calls=(\d+)`)
	readsLine = regexp.MustCompile(`(?m)^total_reads_processed:(\d+)`)
	cpuLine   = regexp.MustCompile(`(?m)^used_cpu_(?:user|sys):([\d.]+)`)
)

// spent returns what Redis has spent since it was started.
func (b *bench) spent(ctx context.Context) (c cost, err error) {
	info, err := b.client.Info(ctx, "all").Result()
	if err != nil {
		return c, fmt.Errorf("asking Redis what it spent: %w", err)
	}
	for _, m := range callsLine.FindAllStringSubmatch(info, -1) {
		calls, _ := strconv.ParseInt(m[1], 10, 64)
		c.commands += calls
	}
	for _, m := range readsLine.FindAllStringSubmatch(info, -1) {
		c.trips, _ = strconv.ParseInt(m[1], 10, 64)
	}
	for _, m := range cpuLine.FindAllStringSubmatch(info, -1) {
		seconds, _ := strconv.ParseFloat(m[1], 64)
		c.cpu += time.Duration(seconds * float64(time.Second))
	}
	return c, nil
}
