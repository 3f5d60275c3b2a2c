package faults

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
)

// A crew is the workers of a scene, each a process.
type crew struct {
	t        testing.TB
	settings settings
	dir      string
	members  []*member
	hired    int
	urls     []string // ways to Redis of their own, in turn; none for the settings'
	program  string   // that those are who are hired next; "" for this one
	apart    bool     // each works for one queue
}

// A member is one worker.
type member struct {
	name    string
	queue   string // the only one that it works for; "" for all
	program string // "" for this one
	cmd     *exec.Cmd
	stdin   io.Closer // the worker ends when it is closed: none outlives the test
	ended   chan error
}

func newCrew(t testing.TB, s settings) *crew {
	c := &crew{t: t, settings: s, dir: t.TempDir()}
	t.Cleanup(func() {
		for _, m := range c.members {
			m.cmd.Process.Kill()
			<-m.ended
		}
		if t.Failed() {
			c.say()
		}
	})
	return c
}

// hire starts one more worker.
func (c *crew) hire() *member {
	c.t.Helper()
	c.hired++
	m := &member{name: fmt.Sprint("worker-", c.hired), program: c.program, ended: make(chan error, 1)}
	s := c.settings
	s.Name, s.Journal = m.name, filepath.Join(c.dir, m.name+journalSuffix)
	if len(c.urls) > 0 {
		s.Redis = c.urls[c.hired%len(c.urls)]
	}
	if c.apart {
		s.Queue, s.Beside = c.neediest(append([]string{s.Queue}, s.Beside...)), nil
		m.queue = s.Queue
	}
	text, err := json.Marshal(s)
	if err != nil {
		c.t.Fatal(err)
	}
	m.cmd = exec.Command(cmp.Or(m.program, os.Args[0]))
	m.cmd.Env = append(os.Environ(), workerVariable+"="+string(text))
	log, err := os.Create(c.log(m.name))
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	m.cmd.Stdout, m.cmd.Stderr = log, log
	if m.stdin, err = m.cmd.StdinPipe(); err != nil {
		c.t.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() { m.ended <- m.cmd.Wait() }()
	c.members = append(c.members, m)
	return m
}

// neediest returns the queue that the fewest workers work for: none is left without one, whoever is killed.
func (c *crew) neediest(queues []string) string {
	return slices.MinFunc(queues, func(a, b string) int { return c.workersOf(a) - c.workersOf(b) })
}

func (c *crew) workersOf(queue string) (n int) {
	for _, m := range c.members {
		if m.queue == queue {
			n++
		}
	}
	return n
}

// journalSuffix ends the names of the workers' journals. Each writes its own: kill -9 may cut a
// line in two, and another worker would write on after the first half.
const journalSuffix = ".jsonl"

// journals returns the files in which the workers wrote down what they ran.
func (c *crew) journals() []string {
	files, err := filepath.Glob(filepath.Join(c.dir, "*"+journalSuffix))
	if err != nil {
		c.t.Fatal(err)
	}
	return files
}

func (c *crew) log(name string) string { return filepath.Join(c.dir, name+".log") }

// leave takes a worker that has ended off the list.
func (c *crew) leave(m *member) {
	rest := c.members[:0]
	for _, other := range c.members {
		if other != m {
			rest = append(rest, other)
		}
	}
	c.members = rest
}

// kill ends a worker as a crash does, and returns when it was about to.
func (c *crew) kill(m *member) time.Time {
	at := time.Now()
	m.cmd.Process.Kill()
	<-m.ended
	c.leave(m)
	return at
}

// signal sends a worker a signal, and returns when it was about to.
func (c *crew) signal(m *member, s syscall.Signal) time.Time {
	at := time.Now()
	if err := m.cmd.Process.Signal(s); err != nil {
		c.t.Errorf("%v to %s: %v", s, m.name, err)
	}
	return at
}

// stop lets a worker end as it should, when it works: a process that does not listen to signals yet is killed by them.
func (c *crew) stop(m *member) {
	c.t.Helper()
	c.waitFor(m)
	c.signal(m, syscall.SIGTERM)
	select {
	case err := <-m.ended:
		if err != nil {
			c.t.Errorf("%s: %v", m.name, err)
		}
		m.ended <- nil
	case <-time.After(90 * time.Second):
		c.t.Errorf("%s does not end", m.name)
		c.signal(m, syscall.SIGQUIT)
	}
	c.leave(m)
}

// wait returns when all workers run.
func (c *crew) wait() {
	c.t.Helper()
	for _, m := range c.members {
		c.waitFor(m)
	}
}

// waitFor waits until a worker works.
func (c *crew) waitFor(m *member) {
	redistest.Eventually(c.t, time.Minute, m.name+" works", func() bool {
		text, err := os.ReadFile(c.log(m.name))
		return err == nil && strings.Contains(string(text), readyLine)
	})
}

// say writes what the workers said that is more than their daily work.
func (c *crew) say() {
	logs, _ := filepath.Glob(filepath.Join(c.dir, "*.log"))
	for _, name := range logs {
		text, _ := os.ReadFile(name)
		const most = 6000
		c.t.Logf("%s:\n%s", filepath.Base(name), text[max(0, len(text)-most):])
	}
}
