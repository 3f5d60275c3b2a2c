package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue/api"
)

// pipes is a listener to which the test connects in the process.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, http.ErrServerClosed
	}
	return conn, nil
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Net: "pipe"} }

// A body that stops in its middle is answered when its time is over, and its connection ends:
// short bodies, which the server would wait for before it answers, as well as long ones. The
// next client does not notice.
func TestABodyThatStops(t *testing.T) {
	t.Parallel()
	for _, length := range []int{20, 1000, 300_000, 20_000_000} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handler, err := api.New(api.Config{Redis: redistest.Mini(t), Token: token})
				if err != nil {
					t.Fatal(err)
				}
				listener := make(pipes)
				server := &http.Server{Handler: handler}
				go func() { _ = server.Serve(listener) }()
				defer close(listener)

				begun := time.Now()
				status, text := offerByHand(t, listener, length, `{"tenant":`)
				if status != http.StatusRequestTimeout || !strings.Contains(text, "the body did not come within 10s") || time.Since(begun) != 10*time.Second {
					t.Errorf("%d after %v: %s", status, time.Since(begun), text)
				}
				whole := `{"tenant":"t","user":"u","type":"push"}`
				if status, text := offerByHand(t, listener, len(whole), whole); status != http.StatusOK {
					t.Errorf("the next one: %d, %s", status, text)
				}
				time.Sleep(time.Second) // the server waits half of one before it closes a connection
			})
		})
	}
}

// offerByHand sends a body that is said to have a length, and returns what is answered until
// the connection ends, or would be kept.
func offerByHand(t *testing.T, listener pipes, length int, body string) (int, string) {
	t.Helper()
	client, server := net.Pipe()
	defer client.Close()
	listener <- server
	_ = client.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(client, "POST /v1/queues/push/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", token, length, body)
	reply, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Errorf("no answer: %v", err)
		return 0, ""
	}
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Error(err)
	}
	if reply.StatusCode != http.StatusOK && !reply.Close {
		t.Error("the connection is kept, and what is left of the body would be taken for the next request")
	}
	return reply.StatusCode, string(text)
}

// While large bodies are on their way others of that size are told to come again, and small ones do not notice.
func TestLargeBodiesSideBySide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler, err := api.New(api.Config{Redis: redistest.Mini(t), Token: token})
		if err != nil {
			t.Fatal(err)
		}
		listener := make(pipes)
		server := &http.Server{Handler: handler}
		go func() { _ = server.Serve(listener) }()
		defer close(listener)

		var large sync.WaitGroup
		for range 4 {
			large.Go(func() {
				if status, text := offerByHand(t, listener, 16<<20, `{"tenant":`); status != http.StatusRequestTimeout {
					t.Errorf("a large one: %d, %s", status, text)
				}
			})
		}
		time.Sleep(time.Second)
		begun, small := time.Now(), `{"tenant":"t","user":"u","type":"push"}`
		large.Go(func() {
			if status, text := offerByHand(t, listener, 1<<20, `{"tenant":`); status != http.StatusServiceUnavailable || !strings.Contains(text, "bodies of 64 MiB are being answered") {
				t.Errorf("one more: %d, %s", status, text)
			}
			if took := time.Since(begun); took > 3*time.Second {
				t.Errorf("one more is answered after %v", took)
			}
		})
		time.Sleep(time.Second)
		for range 50 {
			if status, text := offerByHand(t, listener, len(small), small); status != http.StatusOK || time.Since(begun) > 1500*time.Millisecond {
				t.Errorf("a small one, after %v: %d, %s", time.Since(begun), status, text)
			}
		}
		large.Wait()
		if status, text := offerByHand(t, listener, 1<<20, small+strings.Repeat(" ", 1<<20-len(small))); status != http.StatusOK {
			t.Errorf("a large one, later: %d, %s", status, text)
		}
		time.Sleep(time.Second)
	})
}
