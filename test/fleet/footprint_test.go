package fleet

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
)

// TestFootprint measures what docs/operations.md says of the memory and CPU of a worker and of serve, by which the
// manifests' requests and limits are set. The worker is alone, so that it leads; Prometheus reads both every 5 s.
func TestFootprint(t *testing.T) {
	sample.WholeOnly(t)
	dir := build(t, "./cmd/worker", "./cmd/producer", "./cmd/waterclock")
	for _, s := range []scene{
		{name: "idle", policies: tenants("50/s")},
		{name: "500 jobs a second, paced", policies: tenants("50/s"), rate: 500},
		{name: "500 jobs a second, offered over HTTP", policies: tenants("50/s"), rate: 500, overHTTP: true},
		{name: "a backlog of 100,000 jobs, of which 500 a second start", policies: tenants("5/s"), backlog: 100_000},
		{name: "100,000 users behind one limit by name, of which 500 a second start", policies: tenants("50/s") +
			"limits: {provider: {key: keys.provider, counts: jobs, rules: [{leak: 500/s}]}}\n", backlog: 100_000, users: 100_000},
	} {
		t.Run(s.name, func(t *testing.T) { s.measure(t, dir) })
	}
}

// A scene is what a worker and serve have to do while they are measured.
type scene struct {
	name, policies string
	backlog        int // jobs that are offered at once
	users          int // whose they are; 2000 if it is 0
	rate           int // jobs that are offered a second after that
	overHTTP       bool
}

// tenants are policies with a leak for each of 100 tenants.
func tenants(leak string) string {
	return "default: p\npolicies: {p: {tenant: {rules: [{leak: " + leak + "}]}, user: {rules: [{spacing: 20ms}, {window: 100/10s}]}}}\n"
}

func (s scene) line(i int) string {
	return fmt.Sprintf(`{"tenant":"school-%d","user":"teacher-%d","type":"push","keys":{"provider":"fcm"},"payload":{"title":"School is closed","body":"Snow. See you on Monday."}}`,
		i%100, i/100%(cmp.Or(s.users, 2000)/100))
}

const token = "a-token-that-nobody-guesses"

// offer offers jobs over HTTP, 50 at a time, and in the end 10,000 with each of as many requests as serve answers at once.
func (s scene) offer(ctx context.Context, t *testing.T, address string) {
	post := func(n int, otherwise int) {
		body, _ := io.ReadAll(lines(n, s.line))
		r, err := http.NewRequest("POST", address+"/v1/queues/push/jobs", bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/x-ndjson")
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer reply.Body.Close()
		if _, _ = io.Copy(io.Discard, reply.Body); reply.StatusCode != http.StatusOK && reply.StatusCode != otherwise {
			t.Error(reply.Status)
		}
	}
	tick := time.NewTicker(50 * time.Second / time.Duration(s.rate))
	defer tick.Stop()
	for ctx.Err() == nil {
		post(50, http.StatusOK)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() { post(10_000, http.StatusGatewayTimeout) })
	}
	all.Wait()
}

func (s scene) measure(t *testing.T, dir string) {
	const length = 20 // seconds
	server := redistest.Start(t)
	worker := start(t, nil, "env", "GOMEMLIMIT=460MiB", dir+"/worker", "--redis", server.URL(), "--policies", file(t, "policies.yaml", s.policies), "--sender", "log", "--log-file", os.DevNull, "--http", "127.0.0.1:0")
	worker.ready(t)
	serve := start(t, nil, "env", "GOMEMLIMIT=920MiB", dir+"/waterclock", "serve", "--redis", server.URL(), "--http", "127.0.0.1:0", "--token-file", file(t, "token", token))
	serve.ready(t)
	if s.backlog > 0 {
		if err := <-start(t, lines(s.backlog, s.line), dir+"/producer", "--redis", server.URL(), "--quiet").ended; err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), length*time.Second)
	defer cancel()
	var offering sync.WaitGroup
	switch {
	case s.overHTTP:
		offering.Go(func() { s.offer(ctx, t, serve.ready(t)) })
	case s.rate > 0:
		start(t, lines(s.rate*(length+5), s.line), dir+"/producer", "--redis", server.URL(), "--quiet", "--rate", strconv.Itoa(s.rate), "--batch", "5")
	}
	scrape := time.NewTicker(5 * time.Second)
	defer scrape.Stop()
	before := map[*process]usage{worker: worker.usage(t), serve: serve.usage(t)}
	for ctx.Err() == nil {
		for _, p := range []*process{worker, serve} {
			reply, err := http.Get(p.ready(t) + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, reply.Body)
			reply.Body.Close()
		}
		select {
		case <-ctx.Done():
		case <-scrape.C:
		}
	}
	offering.Wait()
	for name, p := range map[string]*process{"worker": worker, "serve": serve} {
		u := p.usage(t)
		t.Logf("%-6s RSS %3d MiB, at most %3d MiB; CPU %4.1f %% of a core", name, u.rss>>20, u.most>>20, 100*(u.cpu-before[p].cpu).Seconds()/length)
	}
	stats, err := http.Get(serve.ready(t) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Body.Close()
	text, _ := io.ReadAll(stats.Body)
	for _, want := range []string{`event="started"`, `state="waiting"`} {
		t.Log(regexp.MustCompile(`.*` + want + `.*`).FindString(string(text)))
	}
}

// usage is what a process takes.
type usage struct {
	rss, most int64         // bytes of memory, now and at most
	cpu       time.Duration // since it began
}

func (p *process) usage(t *testing.T) (u usage) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		t.Skip("there is no ", proc)
	}
	for field, into := range map[string]*int64{"VmRSS": &u.rss, "VmHWM": &u.most} {
		m := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(status)
		n, _ := strconv.ParseInt(string(m[1]), 10, 64)
		*into = n << 10
	}
	stat, err := os.ReadFile(proc + "stat")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')'):]))
	for _, ticks := range fields[12:14] { // user and system time, of 10 ms
		n, _ := strconv.ParseInt(ticks, 10, 64)
		u.cpu += time.Duration(n) * 10 * time.Millisecond
	}
	return u
}
