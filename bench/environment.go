package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/redis/go-redis/v9"
)

// An environment is what figures depend on beside the code.
type environment struct {
	CPU       string `json:"cpu"`
	Cores     int    `json:"cores"`
	OS        string `json:"os"`
	Kernel    string `json:"kernel"`
	Redis     string `json:"redis"`
	Go        string `json:"go"`
	Asynq     string `json:"asynq"`
	RedisRate string `json:"redis_rate"`
	GoRedis   string `json:"go_redis"`
	Commit    string `json:"commit"`
}

func (e environment) String() string {
	return fmt.Sprintf("%s, %d cores, %s, kernel %s\nRedis %s, %s, asynq %s, redis_rate %s, go-redis %s\ncommit %s",
		e.CPU, e.Cores, e.OS, e.Kernel, e.Redis, e.Go, e.Asynq, e.RedisRate, e.GoRedis, e.Commit)
}

func describe(ctx context.Context, client *redis.Client) (environment, error) {
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return environment{}, fmt.Errorf("asking Redis for its version: %w", err)
	}
	return environment{
		CPU:       firstValue("/proc/cpuinfo", "model name", ":"),
		Cores:     runtime.NumCPU(),
		OS:        strings.Trim(firstValue("/etc/os-release", "PRETTY_NAME", "="), `"`),
		Kernel:    output("uname", "-sr"),
		Redis:     valueOf(info, "redis_version", ":"),
		Go:        runtime.Version(),
		Asynq:     moduleVersion("github.com/hibiken/asynq"),
		RedisRate: moduleVersion("github.com/go-redis/redis_rate/v10"),
		GoRedis:   moduleVersion("github.com/redis/go-redis/v9"),
		Commit:    output("git", "describe", "--always", "--dirty"),
	}, nil
}

// unknown stands for what this machine does not tell.
const unknown = "unknown"

// firstValue finds a key in a file of keys and values.
func firstValue(path, key, separator string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return unknown
	}
	return valueOf(string(text), key, separator)
}

// valueOf finds a key in a text of lines with keys and values.
func valueOf(text, key, separator string) string {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, separator); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return unknown
}

func output(name string, args ...string) string {
	text, err := exec.Command(name, args...).Output()
	if err != nil {
		return unknown
	}
	return strings.TrimSpace(string(text))
}

func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	for _, module := range info.Deps {
		if module.Path == path {
			return module.Version
		}
	}
	return unknown
}
