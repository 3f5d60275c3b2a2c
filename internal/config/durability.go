package config

import (
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/queue"
)

// DurabilityFlags adds the flags that say where jobs have to be before they count as accepted.
func DurabilityFlags(flags *pflag.FlagSet, d *queue.Durability) {
	flags.IntVar(&d.Replicas, "durable-replicas", 0, "how many replicas of Redis must have a job before it counts as accepted")
	flags.BoolVar(&d.Disk, "durable-disk", false, "whether a job must be on Redis's disk before it counts as accepted; needs Redis 7.2 or Valkey, with appendonly yes")
}

// CheckDurability refuses what no Redis can do.
func CheckDurability(d queue.Durability) error {
	if d.Replicas < 0 {
		return Usagef("--durable-replicas %d: want how many, or 0 to wait for none", d.Replicas)
	}
	return nil
}
