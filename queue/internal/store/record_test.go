package store

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
)

// What a worker tells of itself with a beat is what others read.
func TestWorkerRecord(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		s, err := New(client, "q")
		if err != nil {
			t.Fatal(err)
		}
		want := WorkerRecord{
			Places: 7, Doubt: 3 * time.Millisecond, Started: 1763600000123456, Host: "host:1", Since: 1763600000000001,
			Version: "v1", Late: 1234 * time.Microsecond,
		}
		if _, err := s.Beat(t.Context(), Beat{Worker: "a", Lease: time.Minute, Record: want}); err != nil {
			t.Fatal(err)
		}
		got, _, err := s.Records(t.Context(), []string{"a"})
		if err != nil || got[0] != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	})
}
