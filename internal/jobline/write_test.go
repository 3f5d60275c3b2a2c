package jobline

import (
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/simulate"
)

// What was recorded is replayed as it was offered, and read as a job, but for the payload.
func TestRecord(t *testing.T) {
	at := time.Date(2026, 11, 22, 8, 0, 0, 1000, time.UTC)
	for _, job := range []queue.Job{
		{Tenant: "t", User: "u", Type: "push"},
		{Tenant: "<t>\x00", User: "\u202e", Type: "{}", ID: "7", Cost: 3, NotBefore: at, StartBy: at, FinishBy: at, Priority: queue.Low, CollapseKey: "k", MaxAttempts: 1, Timeout: time.Minute,
			Keys: map[string]string{"domain": "<x>"}, Costs: map[string]int{"tokens": 0, "bytes": 7}},
	} {
		line := Record(simulate.Offer{At: at, Job: job})
		o, err := simulate.ReadOffer(line, "at", time.Time{})
		if err != nil || !o.At.Equal(at) || o.Tenant != job.Tenant || o.Priority != job.Priority || !o.StartBy.Equal(job.StartBy) || o.Cost != job.Cost ||
			o.Type != job.Type || !maps.Equal(o.Keys, job.Keys) || !maps.Equal(o.Costs, job.Costs) {
			t.Errorf("%s is replayed as %+v, %v", line, o, err)
		}
		const stamp = `{"at":"2026-11-22T08:00:00.000001Z",`
		got, err := Parse(append([]byte("{"), line[len(stamp):]...))
		if diff := cmp.Diff(job, got); err != nil || diff != "" || string(line[:len(stamp)]) != stamp {
			t.Errorf("%s: %v\n%s", line, err, diff)
		}
	}
}

// What is written is read as the same job, but for the payload: whatever field is added to a job.
func TestWrite(t *testing.T) {
	job := queue.Job{Tenant: "<t>\x00", User: "\u2028", Type: "{}", ID: "7", Cost: 3, Priority: queue.High, CollapseKey: "k", DigestKey: "d", MaxAttempts: 1, Timeout: 90 * time.Second,
		NotBefore: time.Date(2026, 11, 22, 8, 0, 0, 1, time.UTC), StartBy: time.Date(2026, 11, 22, 8, 0, 0, 2, time.UTC), FinishBy: time.Date(2026, 11, 22, 8, 0, 0, 3, time.UTC),
		Headers: map[string]string{"traceparent": "00-…", "": "x"}, Keys: map[string]string{"domain": "<x>"}, Costs: map[string]int{"tokens": 0, "bytes": 7},
		Zone: "Europe/Paris", Quiet: "21:30-07:00",
		Callback: queue.Callback{URL: "https://shop.example/hooks", Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}
	for i, fields := 0, reflect.ValueOf(job); i < fields.NumField(); i++ {
		if name := fields.Type().Field(i).Name; fields.Field(i).IsZero() && name != "Payload" {
			t.Errorf("the test gives the job no %s", name)
		}
	}
	inDigest := job // has no earliest start
	job.DigestKey, inDigest.NotBefore = "", time.Time{}
	for _, job := range []queue.Job{job, inDigest, {Tenant: "t", User: "u", Type: "push"}} {
		line := Write(job)
		got, err := Parse(line)
		if diff := cmp.Diff(job, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", line, err, diff)
		}
	}
}
