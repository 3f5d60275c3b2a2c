package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// roleVariable is the environment variable that makes this program a child: a part of a
// scenario that has to be a process of its own.
const roleVariable = "WATERCLOCK_BENCH_ROLE"

// A role is what a child is to do.
type role struct {
	Name  string // proxy, victim or hand
	Side  string // of a victim: waterclock or asynq
	Redis string // the address of the Redis to use
}

// play is the life of a child. It returns its exit status.
func play(text string) int {
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin) // until the parent is gone, however it went
		cancel()
	}()
	roles := map[string]func(context.Context, role) error{
		"proxy":  playProxy,
		"victim": playVictim,
		"hand":   playHand,
	}
	if err := roles[r.Name](ctx, r); err != nil {
		fmt.Fprintf(os.Stderr, "bench, as %s: %v\n", r.Name, err)
		return 1
	}
	return 0
}

// A child is this program in a role.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	says  *bufio.Scanner
}

func startChild(r role) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), roleVariable+"="+string(text))
	c.cmd.Stderr = os.Stderr
	stdin, err1 := c.cmd.StdinPipe()
	stdout, err2 := c.cmd.StdoutPipe()
	if err := errors.Join(err1, err2, c.cmd.Start()); err != nil {
		return nil, fmt.Errorf("starting a child process: %w", err)
	}
	c.stdin, c.says = stdin, bufio.NewScanner(stdout)
	return c, nil
}

// hear returns the next line that the child says.
func (c *child) hear() (string, error) {
	if !c.says.Scan() {
		return "", errors.Join(errors.New("a child process ended before its time"), c.says.Err())
	}
	return c.says.Text(), nil
}

// Kill ends the child as kill -9 does.
func (c *child) Kill() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
}

// Close lets the child end.
func (c *child) Close() {
	c.stdin.Close()
	c.cmd.Wait()
}
