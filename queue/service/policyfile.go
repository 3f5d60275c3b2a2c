package service

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
)

// A PolicyFile is a file of policies that a program keeps in force: it puts them into Redis when it starts, and again when the
// file has changed. Several programs may keep the same file. What somebody else sets stays until the file changes.
type PolicyFile struct {
	// Logger gets what becomes of a changed file. nil is slog.Default().
	Logger *slog.Logger

	file    file
	rdb     redis.UniversalClient
	queues  []string
	again   chan struct{}
	refused string // why the file was refused last time, not to say it every time
	owed    bool   // read, and not yet in Redis
}

// file is a policy file as it was read.
type file struct {
	name   string
	text   []byte
	info   fs.FileInfo
	parsed queue.Policies
}

// looksAtFile is how often the file is looked at.
const looksAtFile = time.Second

// ReadPolicyFile reads a file of policies. The error of a mistake in it names the line and the field, and says what would be
// right ([queue.ParsePolicies]).
func ReadPolicyFile(name string) (*PolicyFile, error) {
	f, err := read(name)
	if err != nil {
		return nil, err
	}
	return &PolicyFile{file: f, again: make(chan struct{}, 1)}, nil
}

func read(name string) (file, error) {
	// Looked at first: if it changes in between, the next look tells.
	info, err := os.Stat(name)
	if err != nil {
		return file{}, err
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return file{}, err
	}
	f := file{name: name, text: text, info: info}
	f.parsed, err = queue.ParsePolicies(name, text)
	return f, err
}

// Apply puts the policies into Redis, for these queues. Those that are in force already stay the version that they are.
func (p *PolicyFile) Apply(ctx context.Context, rdb redis.UniversalClient, queues ...string) error {
	p.rdb, p.queues = rdb, queues
	return p.apply(ctx)
}

func (p *PolicyFile) apply(ctx context.Context) error {
	p.owed = true
	for _, name := range p.queues {
		inspector, err := queue.NewInspector(p.rdb, name)
		if err != nil {
			return err
		}
		err = inspector.SetPolicies(ctx, p.file.parsed)
		if errors.Is(err, queue.ErrDivided) {
			return fmt.Errorf("%s: partitions: %w; want the number that it has, or none", p.file.name, err)
		}
		if err != nil {
			return err
		}
	}
	p.owed = false
	return nil
}

// Run looks at the file each second until ctx ends, and puts it into Redis when it has changed, for the queues of Apply. A file
// that has a mistake is refused, with one line in the log: the policies in force stay.
func (p *PolicyFile) Run(ctx context.Context) error {
	tick := time.NewTicker(looksAtFile)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.again:
			p.reload(ctx, true)
		case <-tick.C:
			p.reload(ctx, false)
		}
	}
}

// Reload makes Run read the file at once, and put it into Redis in any case: for SIGHUP.
func (p *PolicyFile) Reload() {
	select {
	case p.again <- struct{}{}:
	default: // it is about to
	}
}

// reload reads the file if it looks changed, or in any case if it is asked to. What it
// cannot use it refuses: the policies in Redis stay.
func (p *PolicyFile) reload(ctx context.Context, asked bool) {
	if !asked && !p.owed && p.unchanged() {
		return
	}
	log := cmp.Or(p.Logger, slog.Default())
	f, err := read(p.file.name)
	if err != nil {
		p.refuse(log, err, asked)
		return
	}
	same := bytes.Equal(f.text, p.file.text) && !p.owed && p.refused == ""
	p.file = f
	if same && !asked {
		return
	}
	switch err := p.apply(ctx); {
	case errors.Is(err, queue.ErrDivided):
		p.owed = false
		p.refuse(log, err, asked)
	case err != nil:
		p.refused = ""
		log.Error("setting the policies; trying again", "err", err)
	default:
		p.refused = ""
		log.Info("new policies", "file", p.file.name)
	}
}

// refuse notes why the file cannot be used, and says so unless it did last time.
func (p *PolicyFile) refuse(log *slog.Logger, err error, asked bool) {
	if asked || p.refused != err.Error() {
		log.Error("refused the policies; the old ones stay", "err", err)
	}
	p.refused = err.Error()
}

func (p *PolicyFile) unchanged() bool {
	info, err := os.Stat(p.file.name)
	return err == nil && p.refused == "" && os.SameFile(info, p.file.info) &&
		info.ModTime().Equal(p.file.info.ModTime()) && info.Size() == p.file.info.Size()
}
