package api_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/api"
	"github.com/waterclock/waterclock/throttle"
)

// override sets or ends an override over HTTP, and returns those in force.
func (s *site) override(method, limit string, key []string, body fields, more ...string) (all api.List[queue.Override]) {
	s.Helper()
	query := url.Values{"limit": {limit}, "key": key}
	for i := 0; i < len(more); i += 2 {
		query.Set(more[i], more[i+1])
	}
	text, err := json.Marshal(body)
	if err != nil {
		s.Fatal(err)
	}
	s.expect(s.send(s.request(method, "/v1/queues/push/overrides?"+query.Encode(), "application/json", string(text))), &all)
	return all
}

// Overrides over HTTP are those that an Inspector has: each replaces what it says, of whom the query names, whatever the
// names hold. What is set or ended again changes nothing.
func TestOverridesOverHTTP(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Mini(t), nil)
	s.post("/v1/queues/push/policies", fields{"source": "limits: {domain: {key: keys.domain, rules: [{leak: 10/s}]}}", "version": 0}, nil)
	strange := []string{"a,b&key=c", "100% \x00\u2028"}
	all := s.override("PUT", "user", strange, fields{
		"rules": []string{"window 10/1m over=drop", "spacing 3s"}, "concurrency": "25%", "capacity": 7, "for": "2h", "author": "ann", "reason": "they are slow",
	})
	want := queue.Override{
		Limit: "user", Key: strange, Rules: []throttle.Rule{throttle.Window(10, time.Minute).OrDrop(), throttle.Spacing(3 * time.Second)},
		Concurrency: queue.Concurrency{Percent: 25}, Capacity: 7, Note: queue.Note{Author: "ann", Reason: "they are slow"},
	}
	if len(all.Items) != 1 {
		t.Fatalf("%+v", all)
	}
	got := all.Items[0]
	if lasts := got.Until.Sub(got.Since); lasts != 2*time.Hour {
		t.Errorf("it lasts %v", lasts)
	}
	if want.Since, want.Until = got.Since, got.Until; fmt.Sprint(got) != fmt.Sprint(want) || got.Note != want.Note {
		t.Errorf("%+v; want %+v", got, want)
	}
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	for range 2 { // the second time it takes the place of itself
		all = s.override("PUT", "domain", []string{"gmail.com"}, fields{"rules": []string{"leak 5/s"}, "until": until})
	}
	if len(all.Items) != 2 || !all.Items[0].Until.Equal(until) || all.Items[0].Author != "HTTP" {
		t.Errorf("%+v", all)
	}
	for range 2 {
		all = s.override("DELETE", "user", strange, nil, "author", "bob", "reason", "they are well")
	}
	if len(all.Items) != 1 || all.Items[0].Limit != "domain" {
		t.Errorf("%+v", all)
	}
	var history api.List[struct {
		Author, Reason string
		Version        int64
		Since          time.Time
		Changes        []string
	}]
	s.get("/v1/queues/push/policies/history", &history)
	if len(history.Items) != 5 || history.Items[0].Author != "bob" || history.Items[0].Reason != "they are well" || history.Items[3].Author != "ann" {
		t.Errorf("%+v", history)
	}
	if log := s.log.String(); !strings.Contains(log, "author=ann") || !strings.Contains(log, "author=bob") || !strings.Contains(log, "/overrides") {
		t.Errorf("logged: %s", log)
	}
}

// An override of a limit that is gone from the policies can be ended nevertheless.
func TestAnOverrideOfAGoneLimitEnds(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Mini(t), nil)
	var now api.PoliciesInForce
	s.post("/v1/queues/push/policies", fields{"source": "limits: {domain: {key: keys.domain, rules: [{leak: 10/s}]}}", "version": 0}, nil)
	s.override("PUT", "domain", []string{"gmail.com"}, fields{"rules": []string{"leak 5/s"}, "for": "1h"})
	s.get("/v1/queues/push/policies", &now)
	s.post("/v1/queues/push/policies", fields{"source": "limits: {other: {key: keys.domain, rules: [{leak: 10/s}]}}", "version": now.Version}, nil)
	if all := s.override("DELETE", "domain", []string{"gmail.com"}, nil); len(all.Items) != 0 {
		t.Errorf("%+v", all)
	}
	if a := s.send(s.request("DELETE", "/v1/queues/push/overrides?limit=domain&key=gmail.com", "", "")); a.status != 400 {
		t.Errorf("%d, %s: want that there is no such limit", a.status, a.text)
	}
}
