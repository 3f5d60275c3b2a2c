package runner

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// trimmedOnes returns which jobs make room in a backlog of 60, each in its lane, that may hold 50. One reading of the
// leader may fail meanwhile.
func trimmedOnes(t *testing.T, fails bool) (dropped []string) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		grace := schedule.Grace * time.Microsecond
		s.policies = &schedule.Policies{Version: 1, Default: "p", Policies: map[string]schedule.Policy{"p": {
			Capacity: 50, DropOldest: true,
			Tenant: rules.Compile(grace, rules.Rule{Kind: rules.Leak, Limit: 1, Period: time.Hour}),
			User:   rules.Compile(grace),
		}}}
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		w := s.join("w")
		time.Sleep(5 * time.Second)
		s.offer("first", 1) // takes the only slot of the hour
		time.Sleep(time.Second)
		var once sync.Once
		w.wire.interceptPipelines(func(cmds []redis.Cmder) (err error) {
			if fails && cmds[0].Name() == "lrange" && fmt.Sprint(cmds[0].Args()[3]) != "0" { // a survey reads one job of a lane
				once.Do(func() { err = &net.OpError{Op: "read", Err: errors.New("connection reset")} })
			}
			return err
		})
		st, _ := store.New(s.client, "q")
		for i := range 60 {
			e := envelope.Envelope{Cost: 1, MaxAttempts: 100, Priority: envelope.Normal, Type: "x", Payload: "p"}
			o := store.Offer{Batch: fmt.Sprint("b", i), Keep: time.Minute, Policies: 1, Tenants: []store.OfferTenant{{Name: "t", Capacity: 50, MakesRoom: true}}}
			o.Jobs = append(o.Jobs, store.OfferJob{Lane: envelope.Lane{Tenant: "t", User: fmt.Sprintf("v%02d", i), Priority: 1}, Body: e.Body()})
			if i == 50 {
				time.Sleep(time.Second)
			}
			if _, err := st.Offer(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(30 * time.Second)
		entries, _ := s.client.XRange(t.Context(), "wc:{q}:drops", "-", "+").Result()
		for _, e := range entries {
			lane, _ := e.Values["lane"].(string)
			dropped = append(dropped, lane[strings.Index(lane, "v"):])
		}
		slices.Sort(dropped)
		s.end()
	})
	return dropped
}

// The oldest jobs make room, also where a reading of them has failed.
func TestTheOldestMakeRoomAfterAnError(t *testing.T) {
	usual, after := trimmedOnes(t, false), trimmedOnes(t, true)
	if len(usual) != 10 || usual[9] != "v09:1" || !slices.Equal(usual, after) {
		t.Errorf("dropped: %v, and after an error %v; want the ten oldest", usual, after)
	}
}
