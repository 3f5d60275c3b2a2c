package fleet

import (
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
)

// The limits of TestRollingUpgrade, as the workers read them and as the judge does.
const rolloutPolicies = `
default: school
policies:
  school:
    tenant: {rules: [{leak: 40/s}], concurrency: 5}
    user: {rules: [{spacing: 300ms}, {window: 4/2s}]}
`

var rolloutLimits = limits{perTenant: 40, atOnce: 5, spacing: 300 * time.Millisecond, window: 2 * time.Second, inWindow: 4}

const (
	rolloutJobs    = 800
	rolloutBacklog = 200 // of them are offered at once; the others 100 a second
	rolloutTenants = 3
	rolloutUsers   = 20 // of each tenant
	rolloutBurst   = 5  // jobs for a user, one after the other: more than a window takes
)

// answers says how long the endpoint takes for a job: up to 200 ms, always as long. So tenants have five at once now and then.
func answers(id string) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(id))
	return time.Duration(h.Sum32()%200) * time.Millisecond
}

// Three workers are replaced one by one, twice, under a steady load. Nothing is lost, nothing starts twice, the limits hold,
// and starts go on.
func TestRollingUpgrade(t *testing.T) {
	sample.Slow(t)
	dir, server, policies := build(t, "./cmd/worker", "./cmd/producer"), redistest.Start(t), file(t, "policies.yaml", rolloutPolicies)
	secret := file(t, "secret", "whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 32)))
	judge := newJudge(answers)
	endpoint := httptest.NewServer(judge)
	defer endpoint.Close()
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { judge.watch(over) })

	hire := func() *process {
		return start(t, nil, dir+"/worker", "--redis", server.URL(), "--policies", policies, "--http", "127.0.0.1:0",
			"--sender", "webhook", "--webhook-private", "--webhook-url", endpoint.URL+"/hook", "--secret-file", secret)
	}
	var fleet []*process
	for range 3 {
		fleet = append(fleet, hire())
	}
	for _, p := range fleet {
		p.ready(t)
	}
	offered := make([]string, rolloutJobs)
	line := func(i int) string {
		offered[i] = fmt.Sprint("job-", i)
		tenant, user := fmt.Sprint("school-", i%rolloutTenants), fmt.Sprint("teacher-", i/rolloutTenants/rolloutBurst%rolloutUsers)
		return fmt.Sprintf(`{"id":%q,"tenant":%q,"user":%q,"type":"push","payload":{"title":"Hello","data":{"id":%[1]q,"tenant":%[2]q,"user":%[3]q}}}`,
			offered[i], tenant, user)
	}
	backlog := lines(rolloutBacklog, line)
	rest := lines(rolloutJobs-rolloutBacklog, func(i int) string { return line(rolloutBacklog + i) })
	start(t, backlog, dir+"/producer", "--redis", server.URL(), "--quiet")
	producer := start(t, rest, dir+"/producer", "--redis", server.URL(), "--quiet", "--batch", "5", "--rate", "100")

	came := func(n int) {
		redistest.Eventually(t, 60*time.Second, fmt.Sprint(n, " jobs have come"), func() bool { return judge.count() >= n })
	}
	came(80)
	var slowest, longest time.Duration
	for i := range 2 * len(fleet) {
		began := time.Now()
		next := hire()
		next.ready(t)
		slowest = max(slowest, time.Since(began))
		longest = max(longest, fleet[0].stop(t))
		fleet = append(fleet[1:], next)
		came(80 + 90*(i+1))
	}
	upgraded := time.Now()
	if err := <-producer.ended; err != nil {
		t.Fatalf("%v\n%s", err, producer.stderr)
	}
	came(rolloutJobs)
	for _, p := range fleet { // what is started twice would have come by then, or comes now
		longest = max(longest, p.stop(t))
	}
	close(over)
	watching.Wait()
	v := judge.verdict(offered, rolloutLimits, 150*time.Millisecond, upgraded)
	if len(v.lost) > 0 || len(v.twice) > 0 || len(v.broken) > 0 {
		t.Error(v)
	}
	if v.gap > 1500*time.Millisecond {
		t.Errorf("for %v a tenant started nothing", v.gap)
	}
	if longest > 3*time.Second {
		t.Errorf("a worker whose handlers take 200 ms took %v to end", longest)
	}
	t.Logf("%d jobs; the longest time without a start of a tenant %v; a new worker was ready within %v, an old one ended within %v; the machine was late by up to %v",
		judge.count(), v.gap.Round(time.Millisecond), slowest.Round(time.Millisecond), longest.Round(time.Millisecond), judge.late.Round(time.Millisecond))
}

// The judge objects to what is wrong.
func TestJudge(t *testing.T) {
	began := time.Now()
	at := func(tenant, user string, ms ...int) (all []arrival) {
		for i, ms := range ms {
			all = append(all, arrival{fmt.Sprint(tenant, user, i), tenant, user, began.Add(time.Duration(ms) * time.Millisecond)})
		}
		return all
	}
	l := limits{perTenant: 20, atOnce: 2, spacing: 300 * time.Millisecond, window: 2 * time.Second, inWindow: 3}
	judged := func(offered []string, open int, arrivals ...[]arrival) verdict {
		j := newJudge(nil)
		j.arrivals, j.mostOpen["a"] = slices.Concat(arrivals...), open
		return j.verdict(offered, l, 10*time.Millisecond, began.Add(time.Hour))
	}
	good := at("a", "u", 0, 300, 600, 2000, 2300)
	ids := []string{"au0", "au1", "au2", "au3", "au4"}
	beside := at("b", "u", 1000) // another tenant's start is none of this one's
	if v := judged(append(ids, "bu0"), 2, good, beside); len(v.lost)+len(v.twice)+len(v.broken) > 0 || v.gap != 1400*time.Millisecond {
		t.Errorf("nothing is wrong, and the longest gap is 1.4 s: %v, %v", v, v.gap)
	}
	if v := judged(append(ids, "au5"), 2, good); !slices.Equal(v.lost, []string{"au5"}) {
		t.Errorf("one is lost: %v", v)
	}
	if v := judged(ids[1:], 2, good); len(v.broken) != 1 {
		t.Errorf("one was not offered: %v", v)
	}
	if v := judged(ids, 2, good, []arrival{{"au2", "a", "u", began.Add(9 * time.Second)}}); !slices.Equal(v.twice, []string{"au2"}) {
		t.Errorf("one came twice: %v", v)
	}
	if v := judged(ids, 3, good); len(v.broken) != 1 {
		t.Errorf("three at once: %v", v)
	}
	if v := judged(ids[:2], 2, at("a", "u", 0, 250)); len(v.broken) != 1 {
		t.Errorf("too close: %v", v)
	}
	if v := judged(ids[:4], 2, at("a", "u", 0, 300, 600, 1900)); len(v.broken) != 1 {
		t.Errorf("a window: %v", v)
	}
	crowd := slices.Concat(at("a", "u", 0), at("a", "v", 20), at("a", "w", 100))
	if v := judged([]string{"au0", "av0", "aw0"}, 2, crowd); len(v.broken) != 1 {
		t.Errorf("a leak: %v", v)
	}
}
