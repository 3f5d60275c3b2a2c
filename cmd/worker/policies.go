package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
)

// policyFile is a policy file as it was read.
type policyFile struct {
	name   string
	text   []byte
	info   fs.FileInfo // nil if it was not looked at
	parsed queue.Policies
}

// readPolicies reads the file, or nothing if it has no name.
func readPolicies(name string) (*policyFile, error) {
	if name == "" {
		return nil, nil
	}
	// Looked at first: if it changes in between, the next look tells.
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("--policies: %w", err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("--policies: %w", err)
	}
	file := &policyFile{name: name, text: text, info: info}
	file.parsed, err = queue.ParsePolicies(name, text)
	return file, err
}

// policies keeps the policies of the queues as the file says.
type policies struct {
	file    *policyFile
	queues  []string
	rdb     redis.UniversalClient
	log     *slog.Logger
	every   time.Duration // between two looks at the file
	refused string        // why the file was refused last time, not to say it every time
	owed    bool          // read, and not yet in Redis
}

// newPolicies returns nil if there is no file.
func newPolicies(o options, rdb redis.UniversalClient, file *policyFile, log *slog.Logger) *policies {
	if file == nil {
		return nil
	}
	return &policies{file: file, queues: o.queues, rdb: rdb, log: log, every: time.Second}
}

// apply puts the policies into Redis.
func (p *policies) apply(ctx context.Context) error {
	p.owed = true
	for _, name := range p.queues {
		inspector, err := queue.NewInspector(p.rdb, name)
		if err != nil {
			return err
		}
		if err := inspector.SetPolicies(ctx, p.file.parsed); err != nil {
			return err
		}
	}
	p.owed = false
	return nil
}

// watch applies the file again when it has changed or was asked to, until ctx ends.
func (p *policies) watch(ctx context.Context, again <-chan os.Signal) error {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again:
			p.reload(ctx, true)
		case <-tick.C:
			p.reload(ctx, false)
		}
	}
}

// reload reads the file if it looks changed, or in any case if it is asked to. What it
// cannot use it refuses: the policies in Redis stay.
func (p *policies) reload(ctx context.Context, asked bool) {
	if !asked && !p.owed && p.unchanged() {
		return
	}
	file, err := readPolicies(p.file.name)
	if err != nil {
		if asked || p.refused != err.Error() {
			p.log.Error("refused the policies; the old ones stay", "err", err)
		}
		p.refused = err.Error()
		return
	}
	same := bytes.Equal(file.text, p.file.text) && !p.owed && p.refused == ""
	p.file, p.refused = file, ""
	if same && !asked {
		return
	}
	if err := p.apply(ctx); err != nil {
		p.log.Error("setting the policies; trying again", "err", err)
		return
	}
	p.log.Info("new policies", "file", p.file.name)
}

func (p *policies) unchanged() bool {
	info, err := os.Stat(p.file.name)
	return err == nil && p.refused == "" && os.SameFile(info, p.file.info) &&
		info.ModTime().Equal(p.file.info.ModTime()) && info.Size() == p.file.info.Size()
}
