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

// All scripts begin with the same few functions about types of keys, and those that close digests with one for that
// (lua/include). Redis knows a script by the hash of
// its text, so a worker of another version has other scripts, and both can be used at a time. Commands name the
// hash; a Redis that does not know it, since it was restarted, is sent the text.

// scripts holds each script by its name, once for the whole program. A program that cannot read its own files was
// built wrongly, so that is a panic.
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
		text, name := luaText(file.Name()), strings.TrimSuffix(file.Name(), ".lua")
		if strings.Contains(text, "compose(") {
			text = luaText("include/digests.lua") + text
		}
		all[name] = redis.NewScript(include + text)
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
// read. It has no state of its own: any number of goroutines may use it, and any number of stores
// may be of one queue. All instants are microseconds on Redis's clock.
type Store struct {
	key   Keys
	Queue string // the name of the queue, which CheckQueue has accepted

	// A partition has a number, of so many. A queue that is not divided is number 0 of 1; so is what the partitions of a
	// queue have in common.
	Number, Of int

	// client is the user's. A command may be sent twice by it, see once.go.
	client redis.UniversalClient
	// dedicated is for commands that block and for those that keep a lease, see [Dedicated]; the same as client until
	// Dedicating was called.
	dedicated redis.UniversalClient
}

// New returns the store of a queue, or an error wrapping [ErrInvalidQueue]. It asks Redis nothing.
func New(client redis.UniversalClient, queue string) (*Store, error) {
	if err := CheckQueue(queue); err != nil {
		return nil, err
	}
	return &Store{key: NewKeys(queue), Queue: queue, Of: 1, client: client, dedicated: client}, nil
}

// Dedicating returns a copy of the store that has another client for some commands, see [Dedicated].
func (s *Store) Dedicating(client redis.UniversalClient) *Store {
	other := *s
	other.dedicated = client
	return &other
}

// run runs a script; the client may send it again if a connection breaks. So it is for scripts that may run twice,
// see once.go. The error is one of those that callers understand, see checked.
func (s *Store) run(ctx context.Context, name string, keys []string, args ...any) *redis.Cmd {
	return s.checked(scripts()[name].Run(ctx, s.client, keys, args...))
}

// runDedicated runs a script as run does, by the other client.
func (s *Store) runDedicated(ctx context.Context, name string, keys []string, args ...any) *redis.Cmd {
	return s.checked(scripts()[name].Run(ctx, s.dedicated, keys, args...))
}

// runPatiently runs a script as run does, and again while the queue's hash slot moves to another node of a cluster,
// for about two seconds. Offers are sent by it, since a producer would see the error; workers and the leader try again
// by themselves.
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

// While a hash slot of a cluster moves, no node serves all of its keys for a moment, or the client is sent to another
// node again and again, and gives up.
const (
	movingTries = 40
	movingPause = 50 * time.Millisecond
)

// moving reports whether an error is the answer of a cluster whose slots move. The script has not run: a node either
// has all keys of a script or refuses it.
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

// checked turns an error of a script about the schema, or about a key of another type, into an [ErrSchema] or a
// [BrokenKeyError]. Scripts raise BROKEN with the key, its type and the wanted one (lua/include). The type of meta they
// do not look at, since they read it first: so a WRONGTYPE is about meta.
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

// A Reading is a look at Redis's clock. Each script returns the instant at which it ran, so that every call teaches its
// caller the time (package clock).
type Reading struct {
	// Now is what Redis's clock said while the script ran; 0 if there was no reply.
	Now int64
	// Asked and Answered are before and after the call, on the local clock: Redis's clock said Now in between.
	Asked, Answered time.Time
}

// fields reads a reply of several values. A value of another type, or one that is missing after an error, reads as
// the zero value: so callers may read all values first and look at err last.
type fields struct {
	values []any
	err    error
}

// readFields reads a reply of at least n values. A shorter one is an error, so that values may be read by index.
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

// textsOf reads an array of texts; nil in it, such as a key that MGET has not found, is "".
func textsOf(v any) []string {
	items, _ := v.([]any)
	texts := make([]string, len(items))
	for k, item := range items {
		texts[k], _ = item.(string)
	}
	return texts
}

// A keyList gathers the keys of a script and numbers them, so that arguments can name a key by its number. A key
// is sent, and declared, once, however often it is named.
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

// reset lets the list begin again, with some keys. It keeps its memory.
func (l *keyList) reset(keys ...string) {
	clear(l.numbers)
	l.keys = append(l.keys[:0], keys...)
	for i, key := range keys {
		l.numbers[key] = i + 1
	}
}

// number returns the number of a key as KEYS of Lua counts, from 1. A key that is new is added.
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
