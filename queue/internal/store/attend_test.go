package store

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
)

// Workers of a divided queue see each other while their leases hold, and how many workers a partition wants: half as many each time that
// nobody has repeated it, and what cannot be read is no wish.
func TestAttend(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		s, err := New(client, "push")
		if err != nil {
			t.Fatal(err)
		}
		const hold = time.Minute
		const passed = " 1" // an instant that is long over
		attend := func(worker string, lease time.Duration, wishes map[int]int) Roll {
			t.Helper()
			roll, err := s.Attend(t.Context(), Attendance{Worker: worker, Lease: lease, Hold: hold, Least: 3, Wishes: wishes, Record: WorkerRecord{Places: 10, Host: "h/1"}})
			if err != nil {
				t.Fatal(err)
			}
			return roll
		}
		is := func(roll Roll, workers []string, wanted map[int]int) {
			t.Helper()
			if !slices.Equal(roll.Workers, workers) || !maps.Equal(roll.Wanted, wanted) || roll.Places != 10*len(workers) {
				t.Errorf("%+v, want %v, each with 10 places, and %v", roll, workers, wanted)
			}
			if n, err := s.FleetPlaces(t.Context(), roll.Now); err != nil || n != roll.Places {
				t.Errorf("%d places, %v; want %d", n, err, roll.Places)
			}
		}
		is(attend("b", 30*time.Second, nil), []string{"b"}, map[int]int{})
		is(attend("a", 30*time.Second, map[int]int{2: 13, 3: 4}), []string{"a", "b"}, map[int]int{2: 13, 3: 4})
		fleet, err := s.Fleet(t.Context())
		if err != nil || len(fleet) != 2 || fleet[0].Name != "a" || fleet[0].Host != "h/1" || fleet[0].Places != 10 {
			t.Errorf("%+v, %v", fleet, err)
		}
		client.HSet(t.Context(), "wc:{push}:wanted", "5", "many", "x", "50 "+fmt.Sprint(time.Now().Add(hold/2).UnixMicro()))
		client.ZAdd(t.Context(), "wc:{push}:workers", redis.Z{Member: "before", Score: float64(time.Now().Add(time.Hour).UnixMicro())}) // the clock was set back
		is(attend("b", 30*time.Second, map[int]int{3: 4}), []string{"a", "b"}, map[int]int{2: 13, 3: 4})
		client.ZAdd(t.Context(), "wc:{push}:workers", redis.Z{Member: "a", Score: 1}) // its lease has ended
		client.HSet(t.Context(), "wc:{push}:wanted", "2", "13"+passed, "3", "4"+passed)
		is(attend("b", 30*time.Second, nil), []string{"b"}, map[int]int{2: 6})
		is(attend("b", 30*time.Second, nil), []string{"b"}, map[int]int{2: 6})
		client.HSet(t.Context(), "wc:{push}:wanted", "2", "6"+passed)
		is(attend("b", 30*time.Second, nil), []string{"b"}, map[int]int{})
		client.HDel(t.Context(), "wc:{push}:wanted", "x")
		client.HSet(t.Context(), "wc:{push}:sizes", "b", "many", "gone", 10)
		is(attend("b", 30*time.Second, nil), []string{"b"}, map[int]int{})
		if left := client.HLen(t.Context(), "wc:{push}:sizes").Val(); left != 1 {
			t.Errorf("the places of %d workers are left", left)
		}
		if left := client.HLen(t.Context(), "wc:{push}:wanted").Val(); left != 0 {
			t.Errorf("%d wishes are left", left)
		}
		if err := s.Absent(t.Context(), "b"); err != nil {
			t.Error(err)
		}
		is(attend("c", 30*time.Second, nil), []string{"c"}, map[int]int{})
		client.Del(t.Context(), "wc:{push}:wanted")
		client.Set(t.Context(), "wc:{push}:wanted", "text", 0)
		if _, err := s.Attend(t.Context(), Attendance{Worker: "c", Lease: time.Minute}); !errors.As(err, new(*BrokenKeyError)) {
			t.Errorf("%v, want that a key is broken", err)
		}
	})
}
