package inprocess

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	json "github.com/alicebob/miniredis/v2/gopher-json"
	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// miniredis makes a Lua interpreter for each script that it runs, which takes three times as long as the script. Here a server
// keeps one interpreter: a hook before its commands runs EVALSHA in it, and leaves all other commands to miniredis.
//
// A script runs while the server is locked, and its commands go to miniredis as those of a script do. What makes miniredis take them
// for that is the context of their connection. It makes such contexts itself alone, so one is taken out of a script that it runs:
// a command (grab) keeps the context with which it is called.

// New returns a Redis in this process.
func New() *miniredis.Miniredis {
	m := miniredis.NewMiniRedis()
	if conn, err := m.Dial(); err == nil { // it has a server from then on
		conn.Close()
	}
	keepInterpreter(m)
	return m
}

// Listen returns a Redis in this process that others can connect to at an address.
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
	redis *miniredis.Miniredis

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

func keepInterpreter(m *miniredis.Miniredis) {
	s := &scripts{redis: m, known: make(map[string]*lua.FunctionProto), callers: make(map[*server.Peer]*caller)}
	s.writer, s.reader = bufio.NewWriter(&s.reply), bufio.NewReader(&s.reply)
	s.commands = server.NewPeer(s.writer)
	if err := m.Server().Register(grab, func(c *server.Peer, _ string, _ []string) { s.grabbed = c.Ctx; c.WriteOK() }); err != nil {
		panic(err) // the server is new
	}
	m.Server().SetPreHook(s.before)
}

// before is called before each command. It reports whether it has replied.
func (s *scripts) before(c *server.Peer, command string, args ...string) bool {
	if c == s.commands {
		return false
	}
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
	s.redis.Server().Dispatch(call, []string{"EVAL", "return redis.call('" + grab + "')", "0"})
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
		c.WriteError(told(err))
		return
	}
	write(c, l.Get(1))
}

// told returns the error of a script as Redis tells it: that of its command, where the script has not caught it.
func told(err error) string {
	var raised *lua.ApiError
	if errors.As(err, &raised) {
		if table, is := raised.Object.(*lua.LTable); is {
			return table.RawGetString("err").String()
		}
		return "ERR " + raised.Object.String()
	}
	return "ERR " + err.Error()
}

func list(l *lua.LState, all []string) *lua.LTable {
	table := l.CreateTable(len(all), 0)
	for _, one := range all {
		table.Append(lua.LString(one))
	}
	return table
}

// interpreter returns a Lua with what Redis gives to scripts. They cannot make globals.
func (s *scripts) interpreter() *lua.LState {
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString, lua.MathLibName: lua.OpenMath,
	} {
		l.Push(l.NewFunction(open))
		l.Push(lua.LString(name))
		l.Call(1, 0)
	}
	l.Push(l.NewFunction(json.Loader))
	l.Call(0, 1)
	l.SetGlobal("cjson", l.Get(-1))
	redis := l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{
		"call":         func(l *lua.LState) int { return s.command(l, true) },
		"pcall":        func(l *lua.LState) int { return s.command(l, false) },
		"error_reply":  func(l *lua.LState) int { return errorReply(l, l.CheckString(1)) },
		"status_reply": func(l *lua.LState) int { return field(l, "ok", l.CheckString(1)) },
		"sha1hex": func(l *lua.LState) int {
			sum := sha1.Sum([]byte(l.CheckString(1)))
			l.Push(lua.LString(hex.EncodeToString(sum[:])))
			return 1
		},
		"log":                func(*lua.LState) int { return 0 },
		"replicate_commands": func(l *lua.LState) int { l.Push(lua.LTrue); return 1 },
	})
	for level, name := range []string{"LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"} {
		redis.RawSetString(name, lua.LNumber(level))
	}
	l.SetGlobal("redis", redis)
	l.SetGlobal("server", redis)
	for _, name := range []string{"KEYS", "ARGV"} {
		l.SetGlobal(name, l.NewTable())
	}
	strict := l.NewTable()
	l.SetFuncs(strict, map[string]lua.LGFunction{
		"__newindex": func(l *lua.LState) int {
			l.RaiseError("Script attempted to create global variable '%s'", l.Get(2).String())
			return 0
		},
		"__index": func(l *lua.LState) int {
			l.RaiseError("Script attempted to access nonexistent global variable '%s'", l.Get(2).String())
			return 0
		},
	})
	l.G.Global.Metatable = strict
	l.SetTop(0)
	return l
}

// command calls a command of Redis. Its error is one of the script, if it raises.
func (s *scripts) command(l *lua.LState, raises bool) int {
	args := make([]string, l.GetTop())
	for i := range args {
		switch arg := l.Get(i + 1).(type) {
		case lua.LNumber:
			args[i] = arg.String()
		case lua.LString:
			args[i] = string(arg)
		default:
			l.RaiseError("Lua redis lib command arguments must be strings or integers")
		}
	}
	if len(args) == 0 {
		l.RaiseError("Please specify at least one argument for this redis lib call")
	}
	s.reply.Reset()
	s.writer.Reset(&s.reply)
	s.redis.Server().Dispatch(s.commands, args)
	s.commands.Flush()
	s.reader.Reset(&s.reply)
	reply, err := server.ParseReply(s.reader)
	switch {
	case err != nil && raises:
		errorReply(l, err.Error())
		l.Error(l.Get(-1), 0)
	case err != nil:
		return errorReply(l, err.Error())
	}
	l.Push(value(l, reply))
	return 1
}

// value returns what a reply of a command is for a script.
func value(l *lua.LState, reply any) lua.LValue {
	switch r := reply.(type) {
	case int:
		return lua.LNumber(r)
	case string:
		return lua.LString(r)
	case server.Simple:
		table := l.CreateTable(0, 1)
		table.RawSetString("ok", lua.LString(r))
		return table
	case []any:
		table := l.CreateTable(len(r), 0)
		for _, one := range r {
			table.Append(value(l, one))
		}
		return table
	}
	return lua.LFalse
}

// errorReply gives a script an error reply. A text without a code gets the usual one.
func errorReply(l *lua.LState, text string) int {
	text = strings.TrimPrefix(text, "-")
	if !strings.Contains(text, " ") {
		text = "ERR " + text
	}
	return field(l, "err", text)
}

// field gives a script a table of one field.
func field(l *lua.LState, name, text string) int {
	table := l.CreateTable(0, 1)
	table.RawSetString(name, lua.LString(text))
	l.Push(table)
	return 1
}

// write writes what a script has returned.
func write(c *server.Peer, result lua.LValue) {
	switch r := result.(type) {
	case lua.LBool:
		if r {
			c.WriteInt(1)
			return
		}
		c.WriteNull()
	case lua.LNumber:
		c.WriteInt(int(r))
	case lua.LString:
		c.WriteBulk(string(r))
	case *lua.LTable:
		writeTable(c, r)
	case *lua.LNilType:
		c.WriteNull()
	default:
		c.WriteError(fmt.Sprintf("ERR the script returned a %s", result.Type()))
	}
}

func writeTable(c *server.Peer, table *lua.LTable) {
	if err, is := table.RawGetString("err").(lua.LString); is {
		c.WriteError(string(err))
		return
	}
	if status, is := table.RawGetString("ok").(lua.LString); is {
		c.WriteInline(string(status))
		return
	}
	n := 0
	for table.RawGetInt(n+1) != lua.LNil {
		n++
	}
	c.WriteLen(n)
	for i := range n {
		write(c, table.RawGetInt(i+1))
	}
}
