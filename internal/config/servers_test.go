package config

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
)

// What people see when they name the right server in the wrong way.
func TestWhyNoRedis(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	certificate := redistest.NewCertificate(t)
	secure := redistest.StartTLS(t, certificate).Addr
	guarded := redistest.Start(t, "--user", "default", "off", "--user", "clock", "on", ">right", "~*", "+info").Addr
	sentinel := redistest.Start(t).Addr // is none
	const no, refuses = "no Redis at 127.0.0.1:", "the Redis at 127.0.0.1:"
	tests := map[string]struct{ url, begin, want string }{
		"unknown certificate": {"rediss://" + secure, no, ": tls: failed to verify certificate: x509: certificate signed by unknown authority"},
		"no TLS":              {"redis://" + secure, no, ": it hangs up; want rediss:// if it speaks TLS"},
		"no password":         {"redis://" + guarded, refuses, " refuses: NOAUTH Authentication required."},
		"wrong password":      {"redis://clock:wrong@" + guarded, refuses, " refuses: WRONGPASS invalid username-password pair or user is disabled."},
		"no permission":       {"redis://clock:right@" + guarded, refuses, " refuses: NOPERM this user has no permissions to run the 'ping' command"},
		"no database":         {"redis://" + sentinel + "/99", refuses, " refuses: ERR DB index is out of range"},
		"no sentinel":         {"redis-sentinel://" + sentinel + "/0?master=x", no, "ERR unknown command"},
		"no cluster":          {"redis-cluster://" + sentinel, refuses, " refuses: ERR This instance has cluster support disabled"},
	}
	for name, tt := range tests {
		_, err := OpenRedis(t.Context(), tt.url)
		if err == nil || !strings.HasPrefix(err.Error(), tt.begin) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "wrong@") {
			t.Errorf("%s: the password is in it: %v", name, err)
		}
	}
}

// A Redis that has been started again refuses everything until it has loaded its data.
func TestARedisThatLoads(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	server := redistest.Start(t, "--rdbcompression", "no", "--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024")
	client := server.Client(t)
	once := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1})
	defer once.Close()
	for k := range 300 { // six seconds
		if err := client.Set(t.Context(), fmt.Sprint("key", k), strings.Repeat("x", 1000), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	var resuming sync.WaitGroup
	resuming.Go(server.Resume) // it returns when the data is there
	defer resuming.Wait()
	redistest.Eventually(t, 10*time.Second, "Redis loads", func() bool { return loads(once.Ping(t.Context()).Err()) })
	r, err := OpenRedis(t.Context(), "redis://"+server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
}

// One node of a cluster that may throw jobs away is enough to warn of.
func TestEveryNodeIsChecked(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	cluster := redistest.StartNodes(t, 3)
	if err := cluster.Nodes[2].Client(t).ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	r, err := OpenRedis(t.Context(), cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if len(r.Warnings) != 1 || !strings.HasPrefix(r.Warnings[0], "maxmemory-policy is allkeys-lru: ") {
		t.Errorf("warnings: %q", r.Warnings)
	}
}

// skip_verify is go-redis's, and is passed on.
func TestUnverifiedTLS(t *testing.T) {
	t.Parallel()
	server := redistest.StartTLS(t, redistest.NewCertificate(t))
	r, err := OpenRedis(t.Context(), "rediss://"+server.Addr+"?skip_verify=true")
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	if conn, err := tls.DialWithDialer(&net.Dialer{}, "tcp", server.Addr, nil); err == nil {
		conn.Close()
		t.Error("the certificate is not that of a stranger")
	}
}
