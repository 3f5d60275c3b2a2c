package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// A cost is what Redis has spent.
type cost struct {
	commands int64 // those inside of scripts included
	cpu      time.Duration
}

func (c cost) since(before cost) cost {
	return cost{commands: c.commands - before.commands, cpu: c.cpu - before.cpu}
}

func (c cost) perSecond(d time.Duration) float64 { return float64(c.commands) / d.Seconds() }

var (
	callsLine = regexp.MustCompile(`(?m)^cmdstat_[^:]+:calls=(\d+)`)
	cpuLine   = regexp.MustCompile(`(?m)^used_cpu_(?:user|sys):([\d.]+)`)
)

// spent returns what Redis has spent since it was started.
func (b *bench) spent(ctx context.Context) (cost, error) { return spentBy(ctx, b.client) }

func spentBy(ctx context.Context, client *redis.Client) (c cost, err error) {
	info, err := client.Info(ctx, "all").Result()
	if err != nil {
		return c, fmt.Errorf("asking Redis what it spent: %w", err)
	}
	for _, m := range callsLine.FindAllStringSubmatch(info, -1) {
		calls, _ := strconv.ParseInt(m[1], 10, 64)
		c.commands += calls
	}
	for _, m := range cpuLine.FindAllStringSubmatch(info, -1) {
		seconds, _ := strconv.ParseFloat(m[1], 64)
		c.cpu += time.Duration(seconds * float64(time.Second))
	}
	return c, nil
}
