package notify_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
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
	t.Parallel()
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
	t.Parallel()
	const requests = 3500
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
			// The first alone, and then a hundred at a time.
			if took := time.Since(begin); took > 2*time.Second {
				t.Errorf("%d requests took %v", requests, took)
			}
			if made, _ := p.Connections(); made != connections || len(p.Received()) != requests {
				t.Errorf("%d connections, want %d; %d requests", made, connections, len(p.Received()))
			}
		})
	}
}

// A connection that ends among many messages costs none of them, and little time, whether
// the next ones come one by one or at once: a new connection begins with one stream.
func TestGoAwayUnderLoad(t *testing.T) {
	t.Parallel()
	for name, gap := range map[string]time.Duration{"steady": time.Millisecond, "bursts": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const bursts, each = 12, 50
				s := apnsStage(t, nil)
				var n atomic.Int64
				s.host.Answer(func(notifytest.Received) *notifytest.Answer {
					return &notifytest.Answer{Delay: 50 * time.Millisecond, GoAway: n.Add(1)%(4*each) == 0}
				})
				var sends sync.WaitGroup
				for range bursts {
					for range each {
						time.Sleep(gap)
						sends.Go(func() {
							begin := time.Now()
							o := s.sender.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, s.target)
							if took := time.Since(begin); o.Action != notify.Done || took > time.Second {
								t.Errorf("after %v: %+v", took, o)
							}
						})
					}
					if gap == 0 {
						sends.Wait()
					}
				}
				sends.Wait()
				if made, atOnce := s.host.Connections(); made > 1+bursts/4 || atOnce > 2 {
					t.Errorf("%d connections, %d at once", made, atOnce)
				}
			})
		})
	}
}

// A host that allows few requests at once gets all of them, however many come at a time.
func TestFewStreams(t *testing.T) {
	t.Parallel()
	const requests = 100
	for _, streams := range []int{1, 5, 40} {
		for _, connections := range []int{1, 8} {
			t.Run(fmt.Sprint(streams, " streams, ", connections, " connections"), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, err := notifytest.NewWebhook(notifytest.Options{Streams: streams})
					must(t, err)
					w := wire(&p.Host)
					w.Connections = connections
					s, err := notify.NewWebhook(notify.WebhookConfig{Wire: w})
					must(t, err)
					closeLater(t, &p.Host, s)
					const each = 50 * time.Millisecond
					p.Answer(func(notifytest.Received) *notifytest.Answer { return &notifytest.Answer{Delay: each} })
					begin := time.Now()
					var sends sync.WaitGroup
					for range requests {
						sends.Go(func() {
							o := s.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, notify.Target{Token: p.URL + "/hook", Secret: p.Secret})
							if o.Action != notify.Done {
								t.Errorf("after %v: %+v", time.Since(begin), o)
							}
						})
					}
					sends.Wait()
					if most, took := time.Duration(requests/streams+2)*each, time.Since(begin); took > most || len(p.Received()) != requests {
						t.Errorf("%d requests arrived, the last after %v; want %d within %v", len(p.Received()), took, requests, most)
					}
				})
			})
		}
	}
}

// A provider that allows one request at once on an open connection, until the next one has
// succeeded, delays the requests of the moment and fails none.
func TestOneStreamAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rounds, each = 20, 100
		s := apnsStage(t, nil)
		var n atomic.Int64
		s.host.Answer(func(notifytest.Received) *notifytest.Answer {
			return &notifytest.Answer{Delay: 50 * time.Millisecond, OneStream: n.Add(1)%250 == 0}
		})
		begin := time.Now()
		var sends sync.WaitGroup
		for range each {
			sends.Go(func() {
				for range rounds {
					if o := s.sender.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, s.target); o.Action != notify.Done {
						t.Errorf("after %v: %+v", time.Since(begin), o)
					}
				}
			})
		}
		sends.Wait()
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("%d requests took %v", rounds*each, took)
		}
		if made, _ := s.host.Connections(); made != 1 {
			t.Errorf("%d connections, want 1", made)
		}
	})
}

// The first request of a connection is alone until its answer, which comes with the bound of
// streams: a provider some distance away gets none beyond the one that it allows.
func TestFirstRequestIsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const requests, each = 50, 200 * time.Millisecond
		p, err := notifytest.NewAPNs(notifytest.Options{})
		must(t, err)
		t.Cleanup(func() { time.Sleep(time.Second) }) // the ends of the connections arrive later, too
		dial := p.Dial
		p.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return farAway(c, 50*time.Millisecond), nil
		}
		s := apnsSender(t, p, nil)
		p.Answer(func(notifytest.Received) *notifytest.Answer { return &notifytest.Answer{Delay: each} })
		begin := time.Now()
		var sends sync.WaitGroup
		for range requests {
			sends.Go(func() {
				if o := s.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, notify.Target{Token: "0123456789abcdef"}); o.Action != notify.Done {
					t.Errorf("after %v: %+v", time.Since(begin), o)
				}
			})
		}
		sends.Wait()
		all := p.Received()
		if gap := all[1].At.Sub(all[0].At); gap < each {
			t.Errorf("the second request came %v after the first, which was answered after %v", gap, each)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("%d requests took %v", requests, took)
		}
	})
}

// A distant is a connection on which everything arrives later.
type distant struct {
	net.Conn
	arrivals chan arrival
	rest     []byte
}

type arrival struct {
	data []byte
	at   time.Time
	err  error
}

func farAway(c net.Conn, trip time.Duration) *distant {
	d := &distant{Conn: c, arrivals: make(chan arrival, 10_000)}
	go func() {
		for {
			buf := make([]byte, 16<<10)
			n, err := c.Read(buf)
			d.arrivals <- arrival{buf[:n], time.Now().Add(trip), err}
			if err != nil {
				return
			}
		}
	}()
	return d
}

func (d *distant) Read(p []byte) (int, error) {
	if len(d.rest) == 0 {
		a := <-d.arrivals
		time.Sleep(time.Until(a.at))
		if len(a.data) == 0 && a.err != nil {
			d.arrivals <- a // for the next one who reads
			return 0, a.err
		}
		d.rest = a.data
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// A connection whose first request gets no answer serves the others.
func TestFirstRequestHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := webhookStage(t)
		var n atomic.Int64
		s.host.Answer(func(notifytest.Received) *notifytest.Answer { return &notifytest.Answer{Hang: n.Add(1) == 1} })
		begin := time.Now()
		var sends sync.WaitGroup
		var failed atomic.Int64
		for range 50 {
			sends.Go(func() {
				switch o := s.sender.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, s.target); {
				case o.Action != notify.Done:
					failed.Add(1)
				case time.Since(begin) > 2*time.Second:
					t.Errorf("after %v", time.Since(begin))
				}
			})
		}
		sends.Wait()
		if failed.Load() != 1 {
			t.Errorf("%d requests failed, want the one that hangs", failed.Load())
		}
	})
}

// However many hosts there are, few connections to them are kept.
func TestIdleConnectionsAreBounded(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			const hosts, most = 60, 10
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			var open, mostOpen atomic.Int64
			w := notify.Wire{
				RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, IdleConnections: most,
				Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
					c, err := new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
					mostOpen.Store(max(mostOpen.Load(), open.Add(1)))
					return &counted{Conn: c, open: &open}, err
				},
			}
			s, err := notify.NewWebhook(notify.WebhookConfig{AllowPrivate: true, Wire: w})
			must(t, err)
			defer s.Close()
			for range 2 {
				for i := range hosts {
					to := notify.Target{Token: fmt.Sprintf("https://example.com:%d/hook", 1000+i), Secret: otherSecret}
					if o := s.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, to); o.Action != notify.Done {
						t.Fatalf("outcome %+v", o)
					}
				}
			}
			// One of HTTP/2 is in use until somewhat after the answer.
			if got := mostOpen.Load(); got > most+most/2 {
				t.Errorf("%d connections at once, want %d beside those in use", got, most)
			}
		})
	}
}

// counted is a connection that counts while it is open.
type counted struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
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
