package notify_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
)

// A GOAWAY costs a connection and no message.
func TestGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apnsStage(t, nil)
		s.host.Answer(func(notifytest.Received) *notifytest.Answer { return &notifytest.Answer{GoAway: true} })
		for range 5 {
			if o := s.sender.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, s.target); o.Action != notify.Done {
				t.Errorf("outcome %+v", o)
			}
			time.Sleep(time.Second)
		}
		if made, atOnce := s.host.Connections(); made != 5 || atOnce > 2 {
			t.Errorf("%d connections, %d at once", made, atOnce)
		}
	})
}

// A cold start with many messages at once opens no more connections than it may, even if
// they are more than the connections carry at a time.
func TestConnectionsAreBounded(t *testing.T) {
	const requests = 1500
	for _, connections := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			p, err := notifytest.NewAPNs(notifytest.Options{})
			must(t, err)
			w := wire(&p.Host)
			w.Connections = connections
			s, err := notify.NewAPNs(notify.APNsConfig{Key: p.Key, KeyID: p.KeyID, TeamID: p.TeamID, Topic: p.Topic, Wire: w})
			must(t, err)
			closeLater(t, &p.Host, s)
			p.Answer(func(notifytest.Received) *notifytest.Answer { return &notifytest.Answer{Delay: 50 * time.Millisecond} })
			begin := time.Now()
			var sends sync.WaitGroup
			for range requests {
				sends.Go(func() {
					if o := s.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, notify.Target{Token: "0123456789abcdef"}); o.Action != notify.Done {
						t.Errorf("outcome %+v", o)
					}
				})
			}
			sends.Wait()
			// The first alone, and as soon as Apple allows more all others together.
			if took := time.Since(begin); took > time.Second {
				t.Errorf("%d requests took %v", requests, took)
			}
			if made, _ := p.Connections(); made != connections || len(p.Received()) != requests {
				t.Errorf("%d connections, want %d; %d requests", made, connections, len(p.Received()))
			}
		})
	}
}

// A connection that ends among many messages costs none of them, and little time.
func TestGoAwayUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests = 600
		s := apnsStage(t, nil)
		var n atomic.Int64
		s.host.Answer(func(notifytest.Received) *notifytest.Answer {
			return &notifytest.Answer{Delay: 50 * time.Millisecond, GoAway: n.Add(1)%200 == 0}
		})
		var sends sync.WaitGroup
		for range requests {
			time.Sleep(time.Millisecond)
			sends.Go(func() {
				begin := time.Now()
				o := s.sender.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, s.target)
				if took := time.Since(begin); o.Action != notify.Done || took > time.Second {
					t.Errorf("after %v: %+v", took, o)
				}
			})
		}
		sends.Wait()
		if made, atOnce := s.host.Connections(); made > 1+requests/200 || atOnce > 2 {
			t.Errorf("%d connections, %d at once", made, atOnce)
		}
	})
}

func BenchmarkAPNs(b *testing.B) {
	p, err := notifytest.NewAPNs(notifytest.Options{TCP: true})
	must(b, err)
	w := wire(&p.Host)
	w.Connections = 1
	s, err := notify.NewAPNs(notify.APNsConfig{Key: p.Key, KeyID: p.KeyID, TeamID: p.TeamID, Topic: p.Topic, Wire: w})
	must(b, err)
	closeLater(b, &p.Host, s)
	b.SetParallelism(50)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if o := s.Send(context.Background(), notify.Message{ID: "1", Title: "a"}, notify.Target{Token: "0123456789abcdef"}); o.Action != notify.Done {
				b.Errorf("outcome %+v", o)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pushes/s")
	if made, _ := p.Connections(); made != 1 {
		b.Errorf("%d connections, want 1", made)
	}
}
