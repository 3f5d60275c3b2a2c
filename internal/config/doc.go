// Package config is what the commands have in common: how they start and end (main.go),
// what they say about their flags (flags.go), and how a URL becomes a client of Redis
// (url.go, redis.go).
package config
