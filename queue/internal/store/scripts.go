package store

import (
	"context"
	"embed"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua lua/include/*.lua
var luaFiles embed.FS

// All scripts begin with the same few functions about types of keys (lua/include). Redis knows a script by the hash of
// its text, so a worker of another version has other scripts, and both can be used at a time. A Redis that has
// lost a script is sent its text again.

// scripts holds each script once for the whole program.
var scripts = sync.OnceValue(func() map[string]*redis.Script {
	files, err := luaFiles.ReadDir("lua")
	if err != nil {
		panic(err) // the files are part of the program
	}
	all := make(map[string]*redis.Script, len(files))
	include := luaText("include/types.lua")
	for _, file := range files {
		if file.IsDir() {
			continue
		}
		all[strings.TrimSuffix(file.Name(), ".lua")] = redis.NewScript(include + luaText(file.Name()))
	}
	return all
})

func luaText(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name)
	if err != nil {
		panic(err) // the files are part of the program
	}
	return string(text)
}

// A Store is the keys of one queue in Redis. It has one method for each script and each
// kind of look; nobody else sees keys, arguments or replies. All instants are
// microseconds on Redis's clock.
type Store struct {
	key    Keys
	Queue  string
	client redis.UniversalClient
	waits  redis.UniversalClient // for commands that block, see Waits
}

// New returns the store of a queue, or an error wrapping [ErrInvalidQueue].
func New(client redis.UniversalClient, queue string) (*Store, error) {
	if err := CheckQueue(queue); err != nil {
		return nil, err
	}
	return &Store{key: NewKeys(queue), Queue: queue, client: client, waits: client}, nil
}

// WaitingOn returns the store with a client for the commands that block, see [Waits].
func (s *Store) WaitingOn(waits redis.UniversalClient) *Store {
	other := *s
	other.waits = waits
	return &other
}

// run runs a script; the client may send it again if a connection breaks.
func (s *Store) run(ctx context.Context, name string, keys []string, args ...any) *redis.Cmd {
	return s.checked(scripts()[name].Run(ctx, s.client, keys, args...))
}

// runPatiently runs a script as run does, and again while a slot of a cluster moves.
func (s *Store) runPatiently(ctx context.Context, name string, keys []string, args ...any) *redis.Cmd {
	cmd := s.run(ctx, name, keys, args...)
	for try := 1; moving(cmd.Err()) && try < movingTries && ctx.Err() == nil; try++ {
		select {
		case <-ctx.Done():
			return cmd
		case <-time.After(movingPause):
		}
		cmd = s.run(ctx, name, keys, args...)
	}
	return cmd
}

// A slot of a cluster that moves is at no node for a moment, or at another one than the
// client is told: it gives up after three redirections.
const (
	movingTries = 40
	movingPause = 50 * time.Millisecond
)

// moving tells the answers of a cluster whose slots move. The script has not run.
func moving(err error) bool {
	if err == nil {
		return false
	}
	for _, word := range []string{"MOVED ", "ASK ", "TRYAGAIN", "CLUSTERDOWN"} {
		if strings.HasPrefix(err.Error(), word) {
			return true
		}
	}
	return false
}

// checked puts an answer about the schema, or about a key of another type, into words. What
// scripts do not check themselves is meta, which they read first.
func (s *Store) checked(cmd *redis.Cmd) *redis.Cmd {
	err := cmd.Err()
	if err == nil {
		return cmd
	}
	if schema, found := strings.CutPrefix(err.Error(), "SCHEMA "); found {
		cmd.SetErr(checkSchema(schema))
	} else if _, says, found := strings.Cut(err.Error(), "BROKEN "); found {
		if words := strings.Fields(says); len(words) >= 3 {
			cmd.SetErr(&BrokenKeyError{words[0], words[2]})
		}
	} else if strings.Contains(err.Error(), "WRONGTYPE ") { // the embedded Redis says more before
		cmd.SetErr(&BrokenKeyError{s.key.Meta(), "hash"})
	}
	return cmd
}

// A Reading is a look at Redis's clock: it said Now to a question that was asked at
// Asked and answered at Answered, on the local clock.
type Reading struct {
	Now             int64
	Asked, Answered time.Time
}

// fields reads a reply of several values.
type fields struct {
	values []any
	err    error
}

// readFields reads a reply of at least n values.
func readFields(cmd *redis.Cmd, n int) fields {
	values, err := cmd.Slice()
	if err == nil && len(values) < n {
		err = fmt.Errorf("a reply of %d fields, want %d", len(values), n)
	}
	if err != nil {
		values = make([]any, n)
	}
	return fields{values, err}
}

func (f fields) int(i int) int64 {
	n, _ := f.values[i].(int64)
	return n
}

func (f fields) text(i int) string {
	s, _ := f.values[i].(string)
	return s
}

func (f fields) texts(i int) []string { return textsOf(f.values[i]) }

func textsOf(v any) []string {
	items, _ := v.([]any)
	texts := make([]string, len(items))
	for k, item := range items {
		texts[k], _ = item.(string)
	}
	return texts
}

// A keyList gathers the keys of a script and numbers them.
type keyList struct {
	keys    []string
	numbers map[string]int
}

// newKeyList returns a list that begins with some keys.
func newKeyList(keys ...string) *keyList {
	l := &keyList{numbers: make(map[string]int, 4*len(keys))}
	l.reset(keys...)
	return l
}

// reset lets the list begin again, with some keys.
func (l *keyList) reset(keys ...string) {
	clear(l.numbers)
	l.keys = append(l.keys[:0], keys...)
	for i, key := range keys {
		l.numbers[key] = i + 1
	}
}

// number returns the number of a key, from 1.
func (l *keyList) number(key string) int {
	n := l.numbers[key]
	if n == 0 {
		l.keys = append(l.keys, key)
		n = len(l.keys)
		l.numbers[key] = n
	}
	return n
}

// flag returns a condition as scripts take it: 1 for true, 0 for false.
func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
