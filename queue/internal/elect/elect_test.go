package elect

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/waterclock/waterclock/internal/inprocess"
	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A crew is electors of one queue, of whom those that lead renew their lease until they are told to give up, or
// to die.
type crew struct {
	t      *testing.T
	server *miniredis.Miniredis
	leads  chan string // who begins to lead
	gives  map[string]chan bool
	all    map[string]*Elector
}

func newCrew(t *testing.T) *crew {
	c := &crew{t: t, server: inprocess.New(), leads: make(chan string, 10), gives: map[string]chan bool{}, all: map[string]*Elector{}}
	t.Cleanup(c.server.Close)
	return c
}

// join lets a worker stand for leader until the end of the test. What it leads ends with the word resign, or
// without one.
func (c *crew) join(name string) *Elector {
	s, err := store.New(redistest.MiniClient(c.t, c.server), "q")
	if err != nil {
		c.t.Fatal(err)
	}
	now := clock.New(nil)
	reading, err := s.Clock(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	now.Observe(reading)
	e := New(Config{Store: s, Clock: now, Worker: name, Log: slog.New(slog.DiscardHandler)})
	resigns := make(chan bool)
	c.all[name], c.gives[name] = e, resigns
	ctx, stop := context.WithCancel(c.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.Run(ctx, func(ctx context.Context, first store.Term) {
			c.leads <- name
			fence := store.Fence{Token: first.Token, Lease: Lease(now), Seq: first.Seq + 1, Changes: first.Changes}
			for {
				select {
				case <-ctx.Done():
					return
				case resign := <-resigns:
					if resign {
						if err := s.Resign(ctx, first.Token, ""); err != nil {
							c.t.Error(err)
						}
					}
					return
				case <-time.After(100 * time.Millisecond):
				}
				if _, err := s.Send(ctx, fence, s.NewCommit())(); err != nil {
					return
				}
				fence.Seq++
			}
		})
	}()
	c.t.Cleanup(func() { stop(); <-ended })
	return e
}

// end ends what a worker leads, and resigns or not.
func (c *crew) end(name string, resign bool) {
	select {
	case c.gives[name] <- resign:
	case <-time.After(time.Second):
		c.t.Fatalf("%s does not lead", name)
	}
}

// next returns who leads next, and after what time.
func (c *crew) next() (string, time.Duration) {
	begun := time.Now()
	select {
	case name := <-c.leads:
		return name, time.Since(begun)
	case <-time.After(time.Minute):
		return "nobody", time.Minute
	}
}

// One worker leads. When it dies a deputy does, soon after the end of its lease; the others are not told
// before.
func TestADeputyLeadsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t)
		for _, name := range []string{"a", "b", "c"} {
			c.join(name)
			synctest.Wait()
		}
		first, took := c.next()
		if took > 0 {
			t.Errorf("the first one leads after %v", took)
		}
		time.Sleep(3 * time.Second)
		var deputy string
		for name, e := range c.all {
			if name != first {
				deputy = name
				e.Appoint(true)
				break
			}
		}
		time.Sleep(time.Second)
		c.end(first, false) // it is killed, by the word of the others
		if next, took := c.next(); next != deputy || took < shortest/2 || took > shortest+Looks+50*time.Millisecond {
			t.Errorf("%s leads after %v, want %s after %v", next, took, deputy, shortest)
		}
		time.Sleep(time.Minute)
		if len(c.leads) > 0 {
			t.Errorf("%s leads beside it", <-c.leads)
		}
	})
}

// Who is told to lead does so at once. Who has given up leads again when it is told that nobody does.
func TestWhoIsToldLeadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t)
		c.join("a")
		if first, _ := c.next(); first != "a" {
			t.Fatalf("%s leads", first)
		}
		b := c.join("b")
		time.Sleep(time.Second)
		c.end("a", true)
		synctest.Wait()
		b.Lead()
		if next, took := c.next(); next != "b" || took > 30*time.Millisecond {
			t.Errorf("%s leads after %v, want b at once", next, took)
		}
		time.Sleep(sitOut)
		c.end("b", false) // which sits out itself
		time.Sleep(shortest + 10*time.Millisecond)
		c.all["a"].Look()
		if next, took := c.next(); next != "a" || took > 50*time.Millisecond {
			t.Errorf("%s leads after %v, want a at once", next, took)
		}
	})
}

// A leader that resigns names nobody if it knows nobody: a worker that came at that instant leads soon, and not when the lease would
// have ended.
func TestWhoHasJustComeSeesThatTheLeaderResigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t)
		leader, err := store.New(redistest.MiniClient(t, c.server), "q")
		if err != nil {
			t.Fatal(err)
		}
		term, err := leader.Lead(t.Context(), "a", alone, "")
		if err != nil {
			t.Fatal(err)
		}
		c.join("b")
		synctest.Wait()
		if err := leader.Resign(t.Context(), term.Token, ""); err != nil {
			t.Fatal(err)
		}
		if next, took := c.next(); next != "b" || took > Looks+30*time.Millisecond {
			t.Errorf("%s leads after %v, want b within %v", next, took, Looks)
		}
	})
}

// A worker that will stop leads only if nobody else does.
func TestAStoppingWorkerLeadsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t)
		c.join("a")
		c.next()
		c.all["a"].Stop()
		time.Sleep(time.Second)
		c.end("a", false)
		next, took := c.next()
		if next != "a" || took < 2*shortest {
			t.Errorf("%s leads after %v, want a, which is alone, after twice the lease", next, took)
		}
		b := c.join("b")
		c.end("a", true)
		synctest.Wait()
		b.Lead() // the leader has named it
		if next, took := c.next(); next != "b" || took > 30*time.Millisecond {
			t.Errorf("%s leads after %v, want b", next, took)
		}
	})
}
