package notify_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
)

// plainServer answers every connection with what is not TLS, and returns its address.
func plainServer(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "220 mail.example ready\r\n")
			c.Close()
		}
	}()
	return listener.Addr().String()
}

// outsiders are the senders whose addresses users write, with the real dialer.
func outsiders(t *testing.T, wire notify.Wire) map[string]func(endpoint string) notify.Outcome {
	t.Helper()
	provider, err := notifytest.NewWebPush(notifytest.Options{})
	must(t, err)
	sub, err := provider.Subscribe("browser")
	must(t, err)
	web, err := notify.NewWebPush(notify.WebPushConfig{Key: provider.Key, Subject: "mailto:push@school.example", Wire: wire})
	must(t, err)
	closeLater(t, &provider.Host, web)
	hook, err := notify.NewWebhook(notify.WebhookConfig{Wire: wire})
	must(t, err)
	t.Cleanup(func() { hook.Close() })
	m := notify.Message{ID: "1", Title: "a"}
	return map[string]func(endpoint string) notify.Outcome{
		"webpush": func(endpoint string) notify.Outcome {
			return web.Send(context.Background(), m, notify.Target{Token: endpoint, P256dh: sub.P256dh, Auth: sub.Auth})
		},
		"webhook": func(endpoint string) notify.Outcome {
			return hook.Send(context.Background(), m, notify.Target{Token: endpoint, Secret: otherSecret})
		},
	}
}

// Endpoints that users write reach nothing inside, however the address is written.
func TestUsersStayOutside(t *testing.T) {
	ports := map[string]string{}
	reached := make(chan string, 100)
	for name, address := range map[string]string{"4": "127.0.0.1:0", "6": "[::1]:0"} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Log("no IPv6 here: ", err)
			continue
		}
		defer listener.Close()
		_, ports[name], _ = net.SplitHostPort(listener.Addr().String())
		go func() {
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				reached <- address
				c.Close()
			}
		}()
	}
	for name, send := range outsiders(t, notify.Wire{}) {
		for _, endpoint := range []string{
			"https://127.0.0.1:" + ports["4"], "https://localhost:" + ports["4"], "https://[::ffff:127.0.0.1]:" + ports["4"] + "/",
			"https://[::1]:" + ports["6"] + "/", "https://[::%25lo]:" + ports["6"] + "/", "https://[::1%25lo]:" + ports["6"] + "/",
			"https://[64:ff9b::7f00:1%25lo]:" + ports["4"] + "/", "https://0.0.0.0:" + ports["4"], "https://2130706433:" + ports["4"],
			"https://10.1.2.3/", "https://169.254.169.254/", "https://100.64.0.1/", "https://[fe80::1%25lo]/",
			"https://", "http://example.com/", "ftp://example.com", "https:///x",
		} {
			o := send(endpoint)
			private := strings.Contains(endpoint, "2130706433") // a name, to Go's resolver
			if o.Reached || o.Action != notify.Drop && !private || o.Err == nil {
				t.Errorf("%s to %s: %+v", name, endpoint, o)
			}
		}
	}
	select {
	case address := <-reached:
		t.Errorf("%s was reached", address)
	default:
	}
}

// An egress proxy gets all connections, whatever address it has itself, and decides about
// names. An address that is not public, however it is written, and a name that means one do not
// even get there.
func TestEgressProxy(t *testing.T) {
	hook, err := notifytest.NewWebhook(notifytest.Options{TCP: true})
	must(t, err)
	defer hook.Close()
	var mu sync.Mutex
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.Host)
		mu.Unlock()
		if r.Method != http.MethodConnect || !strings.HasPrefix(r.Host, "stand-in.example:") {
			http.Error(w, "not to s3cr3t", http.StatusForbidden)
			return
		}
		tunnel(t, w, strings.TrimPrefix(hook.URL, "https://"))
	}))
	defer proxy.Close()
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(hook.URL, "https://"))
	sends := outsiders(t, notify.Wire{Proxy: proxy.URL, RootCAs: hook.RootCAs})
	if o := sends["webhook"]("https://stand-in.example:" + port + "/hook"); o.Action != notify.Retry || o.Err.Error() != "notify: webhook answered 401 Unauthorized" {
		t.Errorf("through the proxy: %+v; want the endpoint's own answer to a secret that it does not know", o)
	}
	for name, send := range sends {
		if o := send("https://s3cr3t.example/x"); o.Action != notify.Retry || !strings.HasSuffix(o.Err.Error(), "refused by the proxy") {
			t.Errorf("%s: %+v, want it refused by the proxy", name, o)
		}
		for _, host := range []string{
			"10.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::1%25lo]", "10.0.0.1.", "2130706433", "0x7f000001", "017700000001", "127.1", "0177.0.0.1",
			"0x7f.0.0.1", "127.0.0.0x1", "１２７.0.0.1", "127。0。0。1", "localhost", "LOCALHOST", "localhost.", "ⓛocalhost", "redis", "a.localhost",
			"printer.local", "metadata.google.internal", "s3cr3t.internal.", "db.lan", "vault.corp", "a.intranet", "nas.home", "router.home.arpa",
			"a..example", ".example", "a.example..", "a_b%20c.example",
		} {
			if o := send("https://" + host + ":8443/x"); o.Action != notify.Drop || o.Reached {
				t.Errorf("%s to %s: %+v, want it dropped", name, host, o)
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(asked) != fmt.Sprintf("[CONNECT stand-in.example:%s CONNECT s3cr3t.example:443 CONNECT s3cr3t.example:443]", port) {
		t.Errorf("the proxy was asked for %v", asked)
	}
}

// tunnel joins a connection of a proxy's client with another.
func tunnel(t *testing.T, w http.ResponseWriter, address string) {
	there, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	here, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
	go func() {
		defer there.Close()
		_, _ = io.Copy(there, here)
	}()
	defer here.Close()
	_, _ = io.Copy(here, there)
}

func TestBadProxy(t *testing.T) {
	for _, proxy := range []string{"egress", "://", "/run/proxy"} {
		if _, err := notify.NewWebhook(notify.WebhookConfig{Wire: notify.Wire{Proxy: proxy}}); err == nil || !strings.Contains(err.Error(), "Proxy: want a URL") {
			t.Errorf("%s: %v", proxy, err)
		}
	}
}

// An endpoint chooses its answer: of a header of megabytes nothing is kept.
func TestLargeHeader(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		size := 0
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Long", strings.Repeat("x", size))
		}))
		server.EnableHTTP2 = http2
		server.StartTLS()
		defer server.Close()
		reach := notify.Wire{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
		hook, err := notify.NewWebhook(notify.WebhookConfig{AllowPrivate: true, Wire: reach})
		must(t, err)
		defer hook.Close()
		for _, tt := range []struct {
			size int
			want notify.Action
		}{{32 << 10, notify.Done}, {1 << 20, notify.Retry}} {
			size = tt.size
			if o := hook.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, notify.Target{Token: server.URL, Secret: otherSecret}); o.Action != tt.want || tt.want == notify.Retry && o.Status != 0 {
				t.Errorf("HTTP/2 %v, %d bytes: %+v", http2, size, o)
			}
		}
	}
}
