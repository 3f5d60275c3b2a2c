package inprocess

import (
	"sync"
	"testing"
	"time"
)

// A removal waits neither for another one nor for the server's lock: whoever has one of them may wait for the other.
func TestARemovalWaitsForNobody(t *testing.T) {
	m := New()
	defer m.Close()
	e := &expiry{last: time.Now().Add(-time.Hour)}
	for name, lock := range map[string]sync.Locker{"another removal": &e.mu, "a script": m} {
		t.Run(name, func(t *testing.T) {
			lock.Lock()
			defer lock.Unlock()
			done := make(chan struct{})
			go func() {
				e.remove(m)
				close(done)
			}()
			select {
			case <-done:
			case <-time.After(10 * time.Second):
				t.Error("it waits")
			}
		})
	}
	if e.remove(m); time.Since(e.last) > time.Minute {
		t.Error("the next one removes nothing")
	}
}
