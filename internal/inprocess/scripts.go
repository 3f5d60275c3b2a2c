package inprocess

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// miniredis makes a Lua interpreter for each script that it runs, which takes ten times as long as a script. Here a server
// keeps one interpreter: a hook before its commands runs EVALSHA in it, and leaves all other commands to miniredis.
//
// A script runs while the server is locked, and its commands go to miniredis as those of a script do. What makes miniredis take them
// for that is the context of their connection. It makes such contexts itself alone, so one is taken out of a script that it runs:
// a command (grab) keeps the context with which it is called.

// New returns a Redis in this process. Its keys expire by the clock of the synctest bubble that it is made in, and up to 10 ms early.
// See [NewExact].
func New() *miniredis.Miniredis {
	m, s := start()
	s.expires.last = time.Now()
	return m
}

// NewExact is like New, and its keys expire when they should. With each command at a new instant it looks at all keys.
func NewExact() *miniredis.Miniredis {
	m, _ := start()
	m.ClockTTL(true)
	return m
}

func start() (*miniredis.Miniredis, *scripts) {
	m := miniredis.NewMiniRedis()
	if conn, err := m.Dial(); err == nil { // it has a server from then on
		conn.Close()
	}
	return m, keepInterpreter(m)
}

// Listen returns a Redis in this process that others can connect to at an address. Its keys do not expire.
func Listen(address string) (*miniredis.Miniredis, error) {
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr(address); err != nil {
		return nil, err
	}
	keepInterpreter(m)
	return m, nil
}

// scripts runs the scripts of a server.
type scripts struct {
	redis   *miniredis.Miniredis
	server  *server.Server // kept here, since a closed Redis has none, and commands may still be under way
	expires expiry

	mu      sync.Mutex
	known   map[string]*lua.FunctionProto // by their SHA1
	callers map[*server.Peer]*caller

	grabbing sync.Mutex // one connection's context is taken at a time
	grabbed  any        // the context of the last call of grab

	// What follows is used while the server is locked.
	lua      *lua.LState
	commands *server.Peer // of the script that runs
	reply    bytes.Buffer // to its last command
	writer   *bufio.Writer
	reader   *bufio.Reader
}

// A caller is a connection that scripts are called from.
type caller struct {
	queues bool // it has said MULTI: what it calls runs later
	ctx    any  // of the commands of its scripts; nil if it is to be made
}

// grab is the command that keeps its context.
const grab = "WATERCLOCK.GRAB"

func keepInterpreter(m *miniredis.Miniredis) *scripts {
	s := &scripts{redis: m, server: m.Server(), known: make(map[string]*lua.FunctionProto), callers: make(map[*server.Peer]*caller)}
	s.writer, s.reader = bufio.NewWriter(&s.reply), bufio.NewReader(&s.reply)
	s.commands = server.NewPeer(s.writer)
	if err := s.server.Register(grab, func(c *server.Peer, _ string, _ []string) { s.grabbed = c.Ctx; c.WriteOK() }); err != nil {
		panic(err) // the server is new
	}
	s.server.SetPreHook(s.before)
	return s
}

// before is called before each command. It reports whether it has replied.
func (s *scripts) before(c *server.Peer, command string, args ...string) bool {
	if c == s.commands {
		return false
	}
	s.expires.remove(s.redis)
	switch command {
	case "EVALSHA":
		return len(args) >= 2 && s.run(c, args)
	case "EVAL":
		if len(args) > 0 {
			s.learn(args[0])
		}
	case "SCRIPT":
		switch {
		case len(args) == 2 && strings.EqualFold(args[0], "load"):
			s.learn(args[1])
		case len(args) > 0 && strings.EqualFold(args[0], "flush"):
			s.forget()
		}
	case "MULTI":
		s.caller(c).queues = true
	case "EXEC", "DISCARD":
		s.caller(c).queues = false
	case "SELECT", "AUTH", "HELLO":
		s.caller(c).ctx = nil
	}
	return false
}

// learn keeps a script. One that changes the protocol, or wants the time of the process, is miniredis's own affair.
func (s *scripts) learn(script string) {
	if strings.Contains(script, "setresp") || strings.Contains(script, "os.") {
		return
	}
	if compiled, err := compile(script); err == nil {
		sum := sha1.Sum([]byte(script))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.known[hex.EncodeToString(sum[:])] = compiled
	}
}

func (s *scripts) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.known)
}

// compiled has all scripts that any server has learned: tests make thousands of servers.
var compiled sync.Map

func compile(script string) (*lua.FunctionProto, error) {
	if known, is := compiled.Load(script); is {
		return known.(*lua.FunctionProto), nil
	}
	chunk, err := parse.Parse(strings.NewReader(script), "<string>")
	if err != nil {
		return nil, err
	}
	proto, err := lua.Compile(chunk, "<string>")
	if err != nil {
		return nil, err
	}
	compiled.Store(script, proto)
	return proto, nil
}

// caller returns what is known of a connection.
func (s *scripts) caller(c *server.Peer) *caller {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.callers[c]
	if of == nil {
		of = &caller{}
		s.callers[c] = of
		c.OnDisconnect(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.callers, c)
		})
	}
	return of
}

// run runs a script that is known. It reports false if miniredis is to do it, or to say what is wrong with the call.
func (s *scripts) run(c *server.Peer, args []string) bool {
	s.mu.Lock()
	script := s.known[strings.ToLower(args[0])]
	s.mu.Unlock()
	keys, err := strconv.Atoi(args[1])
	of := s.caller(c)
	if script == nil || err != nil || keys < 0 || keys > len(args)-2 || of.queues {
		return false
	}
	if of.ctx == nil {
		of.ctx = s.nested(c)
	}
	s.redis.Lock()
	defer s.redis.Unlock()
	s.commands.Ctx = of.ctx
	s.call(c, script, args[2:2+keys], args[2+keys:])
	return true
}

// nested returns the context of the commands of a connection's scripts.
func (s *scripts) nested(c *server.Peer) any {
	s.grabbing.Lock()
	defer s.grabbing.Unlock()
	call := server.NewPeer(bufio.NewWriter(&bytes.Buffer{}))
	call.Ctx = c.Ctx
	s.server.Dispatch(call, []string{"EVAL", "return redis.call('" + grab + "')", "0"})
	if c.Ctx == nil {
		c.Ctx = call.Ctx
	}
	return s.grabbed
}

// call runs a script and writes its reply.
func (s *scripts) call(c *server.Peer, script *lua.FunctionProto, keys, args []string) {
	if s.lua == nil {
		s.lua = s.interpreter()
	}
	l := s.lua
	defer l.SetTop(0)
	l.SetGlobal("KEYS", list(l, keys))
	l.SetGlobal("ARGV", list(l, args))
	l.Push(l.NewFunctionFromProto(script))
	if err := l.PCall(0, 1, nil); err != nil {
		c.WriteError(errorText(err))
		return
	}
	write(c, l.Get(1))
}

// errorText returns the error of a script as Redis tells it: that of its command, where the script has not caught it.
func errorText(err error) string {
	var raised *lua.ApiError
	if errors.As(err, &raised) {
		if table, is := raised.Object.(*lua.LTable); is {
			return table.RawGetString("err").String()
		}
		return "ERR " + raised.Object.String()
	}
	return "ERR " + err.Error()
}
