package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// The list of all overrides tells those that have ended from those that were ended or replaced before their time.
func TestPastOverrides(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inspector, err := queue.NewInspector(redistest.Mini(t), "push")
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		set := func(tenant, rule string, length time.Duration) {
			parsed, err := throttle.ParseRule(rule)
			if err == nil {
				err = inspector.Override(t.Context(), queue.Override{Limit: "tenant", Key: []string{tenant}, Rules: []throttle.Rule{parsed}, For: length})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		set("whole", "leak 1/s", 10*time.Second)
		set("replaced", "leak 2/s", time.Hour)
		time.Sleep(20 * time.Second)
		set("replaced", "leak 3/s", time.Hour)
		time.Sleep(20 * time.Second)
		if _, err := inspector.EndOverride(t.Context(), "tenant", "replaced"); err != nil {
			t.Fatal(err)
		}
		set("lasts", "leak 4/s", time.Hour)
		versions, err := inspector.PolicyHistory(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range pastOverrides(versions) {
			got = append(got, fmt.Sprintf("%s %v-%v %t", o.Override, o.Since.Sub(begin).Round(time.Second), o.end().Sub(begin).Round(time.Second), o.Ended.IsZero()))
		}
		want := "tenant whole: leak 1/s 0s-10s true, tenant replaced: leak 2/s 0s-20s false, tenant replaced: leak 3/s 20s-40s false, tenant lasts: leak 4/s 40s-1h0m40s true"
		if all := strings.Join(got, ", "); all != want {
			t.Errorf("%s\nwant %s", all, want)
		}
	})
}
