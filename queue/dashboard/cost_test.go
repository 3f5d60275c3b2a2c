package dashboard

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
)

// crowd writes tenants with a waiting job each, as offers leave them; without their jobs.
func (v *visitor) crowd(tenants int) {
	v.Helper()
	const batch = 1000
	for from := 0; from < tenants; from += batch {
		pipe := v.rdb.Pipeline()
		for i := from; i < from+batch; i++ {
			name := fmt.Sprintf("tenant-%06d", i)
			pipe.HSet(v.Context(), "wc:{push}:tenant:"+name, "in", 1+i%7)
			pipe.ZAdd(v.Context(), "wc:{push}:tenants", redis.Z{Score: float64(i + 1), Member: name})
		}
		pipe.HIncrBy(v.Context(), "wc:{push}:meta", "in", batch*3)
		_, err := pipe.Exec(v.Context())
		v.must(err)
	}
}

// Whatever the number of tenants, a page asks for what it shows: it costs as many commands with
// 100,000 of them as with a thousand.
func TestPagesCostTheSameHoweverManyTenants(t *testing.T) {
	few, many := pageCosts(t, 1000), pageCosts(t, 100_000)
	for _, page := range everyPage("tenant-000007", "user", "id") {
		small, cost := few(page), many(page)
		if cost > small+10+small/10 && !strings.Contains(page, "sort=") && !strings.Contains(page, "q=") {
			t.Errorf("%s: %d commands with 100,000 tenants, %d with a thousand", page, cost, small)
		}
		if bound := 2*surveyPart + 100; cost > bound {
			t.Errorf("%s: %d commands, want %d at most", page, cost, bound)
		}
	}
}

// pageCosts returns what counts the commands of a page, of a queue with so many tenants. Each
// finds nothing that the one before has read or recorded.
func pageCosts(t *testing.T, tenants int) func(page string) int {
	client := redistest.Start(t).Client(t)
	v := visit(t, client, "")
	v.limit(limits)
	v.crowd(tenants)
	counted := &redistest.Counter{}
	client.AddHook(counted)
	return func(page string) int {
		v.queues["push"].cache.forget()
		charts, err := client.Keys(t.Context(), "wc:{push}:chart*").Result()
		v.must(err)
		v.must(client.Del(t.Context(), append(charts, "none")...).Err())
		counted.Take()
		v.page(page)
		return counted.Take()
	}
}

// However many look at a page, Redis is asked once a second.
func TestManyWatchersCostAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		v := visit(t, client, "")
		v.limit(limits)
		v.enqueue(jobs("school", "teacher", 20)...)
		counted := &redistest.Counter{}
		client.AddHook(counted)
		for _, page := range everyPage("school", "teacher", "schoolteacher3") {
			time.Sleep(soon)
			counted.Take()
			v.page(page)
			one := counted.Take()
			for range 30 {
				v.page(page)
			}
			if more := counted.Take(); one == 0 && page != "" || more > 0 {
				t.Errorf("%s: %d commands for the first, %d for 30 more", page, one, more)
			}
		}
		// The reader of an open dashboard, beside a second one.
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		other := visit(t, client, "")
		go func() { ended <- v.Dashboard.Run(ctx) }()
		go func() { ended <- other.Dashboard.Run(ctx) }()
		time.Sleep(10*time.Second + 500*time.Millisecond)
		counted.Take()
		const seconds = 20
		time.Sleep(seconds * time.Second)
		if n := counted.Take(); n > seconds*150 {
			t.Errorf("two dashboards send %d commands a second", n/seconds)
		}
		cancel()
		v.must(<-ended)
		v.must(<-ended)
	})
}

// What is kept of pages is bounded, whatever is asked for.
func TestCacheIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, redistest.Mini(t), "")
		for i := range cacheSize + 100 {
			v.page(link("tenant", "t", fmt.Sprint("nobody-", i)))
		}
		of := v.queues["push"]
		if n := len(of.cache.entries); n > cacheSize {
			t.Errorf("%d pages are kept", n)
		}
		if n := len(of.rates.seen); n > 2*ratesKept {
			t.Errorf("%d tenants are kept", n)
		}
		time.Sleep(soon)
		v.page("tenants")
		if _, ok, _ := of.cache.known("tenants?"); !ok {
			t.Error("a page is not kept although the others are old")
		}
	})
}

var tenantLinks = regexp.MustCompile(`/dashboard/push/tenant\?t=(tenant-\d+)`)

// A survey walks through the tenants while somebody looks, and then sorts them all.
func TestSurvey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, redistest.Mini(t), "")
		v.crowd(5000)
		body := v.sees("tenants?sort=waiting", "Looking through the tenants: 2,000 so far")
		for _, want := range []string{"4,000 so far", "Among 5,000 tenants"} {
			time.Sleep(2 * time.Second)
			body = v.sees("tenants?sort=waiting", want)
		}
		if first := tenantLinks.FindAllStringSubmatch(body, 2); len(first) < 2 || first[0][1] != "tenant-000006" || first[1][1] != "tenant-000013" {
			t.Errorf("the first are %v", first)
		}
		seen := make(map[string]bool)
		for from := 0; from < 5000; from += rowsOf {
			for _, row := range tenantLinks.FindAllStringSubmatch(v.page(fmt.Sprintf("tenants?sort=name&from=%d", from)), -1) {
				if seen[row[1]] {
					t.Fatalf("%s is on two pages", row[1])
				}
				seen[row[1]] = true
			}
		}
		if len(seen) != 5000 {
			t.Errorf("%d tenants on all pages", len(seen))
		}
		v.sees("tenants?q=0049", "tenant-000049", "tenant-004901")
		v.sees("tenants?from=4950", "tenant-004999")

		counted := &redistest.Counter{}
		v.rdb.AddHook(counted)
		time.Sleep(2 * time.Second)
		v.page("tenants?sort=waiting")
		if n := counted.Take(); n > 20 {
			t.Errorf("a fresh survey is made again, with %d commands", n)
		}
		v.rdb.ZRemRangeByRank(t.Context(), "wc:{push}:tenants", 0, 3999)
		time.Sleep(surveyAgain)
		v.sees("tenants?sort=waiting", "Among 1,000 tenants")
		time.Sleep(time.Hour)
		v.page("")
		counted.Take()
		time.Sleep(time.Hour)
		if n := counted.Take(); n > 0 {
			t.Errorf("a survey walks although nobody looks: %d commands", n)
		}
	})
}

// A rate is that of some seconds, however often somebody looks.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rates
		if got := r.of("a", 100); got >= 0 {
			t.Errorf("%v at once", got)
		}
		for i := range 60 {
			time.Sleep(500 * time.Millisecond)
			if got := r.of("a", 100+int64(5*(i+1))); i > 2 && (got < 9 || got > 11) {
				t.Errorf("after %d looks: %v/s, want 10", i+1, got)
			}
		}
		if got := r.of("a", 3); got >= 0 {
			t.Errorf("%v after the counter has begun again", got)
		}
	})
}

// What rules allow in the long run is the least of the queue's and of all tenants'.
func TestAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, redistest.Mini(t), "")
		of := v.queues["push"]
		for source, want := range map[string]string{
			"{}": "any rate",
			"default: p\npolicies: {p: {tenant: {rules: [{leak: 5/s}, {window: 60/1m}]}}}":                                         "<dd>3/s",
			"default: p\npolicies: {p: {tenant: {rules: [{leak: 5/s}, {window: 1/1h, over: drop}, {spacing: 1h, shadow: true}]}}}": "<dd>15/s",
			"queue: {rules: [{leak: 7/s}]}\ndefault: p\npolicies: {p: {tenant: {rules: [{leak: 5/s}]}}}":                           "<dd>7/s",
			"default: p\npolicies: {p: {tenant: {rules: [{leak: 5/s}]}}, q: {}}\ntenants: {a: q}":                                  "any rate",
		} {
			v.limit(source)
			v.rdb.Del(t.Context(), "wc:{push}:tenants")
			v.enqueue(jobs("a", "u", 2)...)
			v.enqueue(jobs("b", "u", 2)...)
			v.enqueue(jobs("c", "u", 2)...)
			for _, tenant := range []string{"a", "b", "c"} {
				v.rdb.ZAdd(t.Context(), "wc:{push}:tenants", redis.Z{Score: 1, Member: tenant})
			}
			time.Sleep(soon)
			if body := v.page(""); !strings.Contains(body, "<dt>Rules allow</dt><dd>"+strings.TrimPrefix(want, "<dd>")) {
				t.Errorf("%s: lacks %s:\n%s", source, want, body)
			}
		}
		v.limit(limits)
		v.crowd(1000)
		time.Sleep(soon)
		if a, err := of.allowance(t.Context(), 3000); err != nil || !a.Guess || a.Tenants != allowanceSample {
			t.Errorf("%+v, %v", a, err)
		}
	})
}
