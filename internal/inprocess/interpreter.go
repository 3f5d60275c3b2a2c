package inprocess

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"

	json "github.com/alicebob/miniredis/v2/gopher-json"
	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
)

// interpreter returns a Lua with what Redis gives to scripts. They cannot make globals.
func (s *scripts) interpreter() *lua.LState {
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString, lua.MathLibName: lua.OpenMath,
		lua.CoroutineLibName: lua.OpenCoroutine,
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

// list returns texts as a table.
func list(l *lua.LState, all []string) *lua.LTable {
	table := l.CreateTable(len(all), 0)
	for _, one := range all {
		table.Append(lua.LString(one))
	}
	return table
}
