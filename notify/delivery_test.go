package notify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A school runs a worker with a sender, on virtual time.
type school struct {
	t   *testing.T
	rdb *redis.Client
	log bytes.Buffer
	mu  sync.Mutex

	begin time.Time
}

func (s *school) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

func (s *school) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

func newSchool(t *testing.T, sender notify.Sender, cfg notify.HandlerConfig, p queue.Policy) *school {
	t.Helper()
	return newLimitedSchool(t, redistest.Mini(t), sender, cfg, p, nil)
}

// newLimitedSchool is a school on a Redis, with limits by name.
func newLimitedSchool(t *testing.T, rdb *redis.Client, sender notify.Sender, cfg notify.HandlerConfig, p queue.Policy, limits map[string]queue.Limit) *school {
	t.Helper()
	s := &school{t: t, rdb: rdb, begin: time.Now()}
	must(t, s.inspector().SetPolicies(t.Context(), queue.Policies{Default: "p", Policies: map[string]queue.Policy{"p": p}, Limits: limits}))
	cfg.Redis, cfg.Logger = s.rdb, slog.New(slog.NewTextHandler(s, nil))
	handler, err := notify.NewHandler(sender, cfg)
	must(t, err)
	worker, err := queue.NewWorker(s.rdb, queue.WorkerConfig{Queues: []string{"push"}, Logger: cfg.Logger})
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx, handler) }()
	t.Cleanup(func() {
		stop()
		must(t, <-done)
	})
	return s
}

func (s *school) inspector() *queue.Inspector { return newInspector(s.t, s.rdb, "push") }

func (s *school) stats() queue.Stats {
	s.t.Helper()
	stats, err := s.inspector().Stats(s.t.Context())
	must(s.t, err)
	return stats
}

// notify offers a message to a user.
func (s *school) notify(user string, m notify.Message) {
	s.t.Helper()
	job, err := notify.NewJob("school", user, m)
	must(s.t, err)
	_, err = newClient(s.t, s.rdb, "push").Enqueue(s.t.Context(), job)
	must(s.t, err)
}

// A provider that is away for 30 s under load loses nothing, is left alone for as long
// as it asked, and is not flooded afterwards.
func TestOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const perSecond, jobs = 20, 500
		stage, _ := fcmStage(t)
		leak := throttle.Leak(perSecond, time.Second)
		s := newSchool(t, stage.sender, notify.HandlerConfig{}, queue.Policy{
			Tenant: []throttle.Rule{leak}, User: []throttle.Rule{throttle.Window(20, time.Hour)},
		})
		begin := time.Now()
		from, to := begin.Add(10*time.Second), begin.Add(40*time.Second)
		stage.host.Answer(func(r notifytest.Received) *notifytest.Answer {
			if r.At.Before(from) || !r.At.Before(to) {
				return &notifytest.Answer{Delay: 30 * time.Millisecond}
			}
			return notifytest.Unavailable(to.Sub(r.At))
		})
		var batch []queue.Job
		for i := range jobs {
			m := notify.Message{Title: "a", Targets: []notify.Target{{Token: fmt.Sprint("device-", i)}}}
			job, err := notify.NewJob("school", fmt.Sprint("parent-", i%30), m)
			must(t, err)
			batch = append(batch, job)
		}
		for part := range slices.Chunk(batch, 100) {
			_, err := newClient(t, s.rdb, "push").Enqueue(t.Context(), part...)
			must(t, err)
		}
		time.Sleep(60 * time.Second)
		var sent, refused []throttle.Event
		devices := map[string]int{}
		for _, r := range stage.host.Received() {
			if r.Status == 200 {
				sent = append(sent, throttle.Event{At: r.At})
				devices[r.Device]++
				continue
			}
			refused = append(refused, throttle.Event{At: r.At})
		}
		if len(sent) != jobs || len(devices) != jobs {
			t.Errorf("%d messages on %d devices, want %d: one each", len(sent), len(devices), jobs)
		}
		// One device proves nothing; fifteen in a row do.
		if last := refused[len(refused)-1]; len(refused) != 15 || last.At.Sub(from) > time.Second {
			t.Errorf("%d requests during the outage, the last after %v; want 15 at its beginning", len(refused), last.At.Sub(from))
		}
		// On a network without latency, arrivals are spaced as slots are.
		for i := 1; i < len(sent); i++ {
			if gap := sent[i].At.Sub(sent[i-1].At); gap < 40*time.Millisecond {
				t.Fatalf("message %d came %v after the one before; the leak is one in 50ms", i, gap)
			}
		}
		if end := sent[len(sent)-1].At.Sub(begin); end > 56*time.Second {
			t.Errorf("the last came after %v, want 25 s of work and 30 s of outage", end)
		}
		if st := s.stats(); st.Done != jobs || st.Failed != 15 || st.Waiting != 0 {
			t.Errorf("%+v, want all done, and no attempts failed but those that met the outage", st)
		}
	})
}

// A message to three devices takes one place in the user's window, and a retry goes only
// to the device that failed.
func TestSeveralDevices(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stage, _ := fcmStage(t)
		s := newSchool(t, stage.sender, notify.HandlerConfig{}, queue.Policy{User: []throttle.Rule{throttle.Window(3, time.Hour)}})
		failed := map[string]bool{"three": true}
		stage.host.Answer(func(r notifytest.Received) *notifytest.Answer {
			if r.Device == "tablet" && !failed[r.Title] {
				failed[r.Title] = true
				return notifytest.HTML(500)
			}
			return nil
		})
		devices := []notify.Target{{Token: "phone"}, {Token: "tablet"}, {Token: "watch"}}
		for _, title := range []string{"one", "two", "three", "four"} {
			s.notify("teacher", notify.Message{Title: title, Targets: devices})
			time.Sleep(time.Minute)
		}
		got := map[string]int{}
		for _, r := range stage.host.Received() {
			got[fmt.Sprint(r.Title, " ", r.Device, " ", r.Status)]++
		}
		want := map[string]int{
			"one phone 200": 1, "one watch 200": 1, "one tablet 500": 1, "one tablet 200": 1,
			"two phone 200": 1, "two watch 200": 1, "two tablet 500": 1, "two tablet 200": 1,
			"three phone 200": 1, "three watch 200": 1, "three tablet 200": 1,
		}
		for what, n := range want {
			if got[what] != n {
				t.Errorf("%s: %d times, want %d; all: %v", what, got[what], n, got)
			}
		}
		if len(got) != len(want) {
			t.Errorf("received %v, want %v: the fourth waits for its hour", got, want)
		}
		time.Sleep(time.Hour)
		if n := len(stage.host.Received()); n != 15 {
			t.Errorf("%d requests after the hour, want 15", n)
		}
	})
}

// When every device's token is said to be bad the configuration is to blame: no token is
// forgotten, sending is suspended with an alarm, and nothing is lost.
func TestMassLoss(t *testing.T) {
	t.Parallel()
	for name, answer := range sample.Cases(t, map[string]*notifytest.Answer{
		"apns": notifytest.Reason(400, "BadDeviceToken"), "webpush": notifytest.HTML(404),
	}, 0, 1) {
		synctest.Test(t, func(t *testing.T) {
			c := openCrowd(t, name)
			if name == "webpush" { // a relay that has lost its way
				c = openRelay(t)
			}
			var forgotten atomic.Int64
			s := newSchool(t, c.sender, notify.HandlerConfig{
				Shared: true,
				Forget: func(context.Context, queue.Info, notify.Target, error) error { forgotten.Add(1); return nil },
			}, queue.Policy{Tenant: []throttle.Rule{throttle.Leak(20, time.Second)}})
			const jobs = 600
			at := func(r notifytest.Received) *notifytest.Answer {
				if r.At.Sub(s.begin) < 10*time.Second { // it works at first
					return nil
				}
				return answer
			}
			c.host.Answer(at)
			for i := range jobs {
				s.notify(fmt.Sprint("parent-", i), notify.Message{Title: fmt.Sprint(i), Targets: []notify.Target{c.target(i)}})
			}
			time.Sleep(time.Minute)
			if n := len(c.host.Received()); n < 400 || n > 440 {
				t.Errorf("%s: %d requests in the first minute, want 200 that got through and 200 and some that prove a mistake", name, n)
			}
			if st := s.stats(); forgotten.Load() != 0 || st.Dead != 0 || st.Dropped != 0 {
				t.Errorf("%s: %d forgotten, %+v; want none, and none dead", name, forgotten.Load(), st)
			}
			if log := s.logged(); !strings.Contains(log, "level=ERROR msg=\"the provider calls device after device bad") || strings.Contains(log, "0000000000") {
				t.Errorf("the log has no alarm, or a token:\n%s", log)
			}
			c.host.Answer(nil) // somebody mended it
			time.Sleep(20 * time.Minute)
			arrived := make(map[string]bool)
			for _, r := range c.host.Received() {
				if r.Status/100 == 2 {
					arrived[r.Title] = true
				}
			}
			if st := s.stats(); st.Done != jobs || len(arrived) != jobs || forgotten.Load() != 0 {
				t.Errorf("%s: %d arrived, %d forgotten, %+v; want all others done", name, len(arrived), forgotten.Load(), st)
			}
		})
	}
}

// Dead tokens are forgotten one by one, and take nothing from the user's window.
func TestForget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stage := apnsStage(t, nil)
		var forgotten []string
		fails := 1
		s := newSchool(t, stage.sender, notify.HandlerConfig{
			Forget: func(_ context.Context, job queue.Info, gone notify.Target, why error) error {
				if fails > 0 {
					fails--
					return errors.New("the app's database is away")
				}
				forgotten = append(forgotten, job.User+" "+gone.Token+" "+why.Error())
				return nil
			},
		}, queue.Policy{User: []throttle.Rule{throttle.Window(1, time.Hour)}})
		died := time.Now()
		stage.host.Answer(func(r notifytest.Received) *notifytest.Answer {
			if r.Device[0] == 'd' {
				return notifytest.Gone(died)
			}
			return nil
		})
		s.notify("teacher", notify.Message{Title: "a", Targets: []notify.Target{{Token: "dead00000001"}}})
		time.Sleep(time.Minute)
		s.notify("teacher", notify.Message{Title: "b", Targets: []notify.Target{{Token: "a11fe0000001"}}})
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []string{"teacher dead00000001 notify: apns answered 410 Gone, Unregistered"}
		if !slices.Equal(forgotten, want) || s.stats().Done != 2 || last(t, stage.host).Title != "b" {
			t.Errorf("forgotten %q, want %q; %+v", forgotten, want, s.stats())
		}
		// One that came back to life meanwhile is not.
		back := notify.Target{Token: "dead00000002", Registered: died.Add(time.Second)}
		s.notify("parent", notify.Message{Title: "c", Targets: []notify.Target{back}})
		time.Sleep(time.Second)
		synctest.Wait()
		if len(forgotten) != 1 || s.stats().Later != 1 {
			t.Errorf("forgotten %q; %+v", forgotten, s.stats())
		}
	})
}

// A provider in trouble that does not say for how long is asked again with single
// messages, less and less often.
func TestSuspensionsGrow(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stage := apnsStage(t, nil)
		s := newSchool(t, stage.sender, notify.HandlerConfig{}, queue.Policy{})
		stage.host.Answer(func(notifytest.Received) *notifytest.Answer { return notifytest.Unavailable(0) })
		for i := range 40 {
			s.notify(fmt.Sprint("parent-", i), notify.Message{Title: "a", Targets: []notify.Target{{Token: fmt.Sprintf("%016x", i+1)}}})
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Hour)
		var gaps []time.Duration
		all := stage.host.Received()
		for i := 15; i < len(all); i++ {
			gaps = append(gaps, all[i].At.Sub(all[i-1].At).Round(time.Second))
		}
		want := []time.Duration{10, 20, 40, 80, 160, 320, 640, 900, 900}
		for i := range want {
			want[i] *= time.Second
		}
		if !slices.Equal(gaps, want) {
			t.Errorf("after %d that met the trouble tried after %v, want %v", 15, gaps, want)
		}
		stage.host.Answer(nil)
		time.Sleep(20 * time.Minute)
		if st := s.stats(); st.Done != 40 {
			t.Errorf("%+v, want all done", st)
		}
	})
}

// What is expired at the start is not sent, and what is sent says how long it is good for.
func TestExpiryCountsFromTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stage, _ := fcmStage(t)
		s := newSchool(t, stage.sender, notify.HandlerConfig{}, queue.Policy{User: []throttle.Rule{throttle.Spacing(time.Minute)}})
		end := time.Now().Add(90 * time.Second)
		for range 3 {
			s.notify("teacher", notify.Message{Title: "a", Expires: end, Targets: []notify.Target{{Token: "phone"}}})
		}
		time.Sleep(10 * time.Minute)
		all := stage.host.Received()
		if len(all) != 2 || s.stats().Dropped != 1 {
			t.Fatalf("%d arrived, %+v; want two, and the third dropped", len(all), s.stats())
		}
		for _, r := range all {
			if off := end.Sub(r.Expires); off < 0 || off > time.Second {
				t.Errorf("at %v it is good until %v, %v off", r.At, r.Expires, off)
			}
		}
	})
}

func TestTargetsKeepTheirSecret(t *testing.T) {
	to := notify.Target{Token: "secret", P256dh: "secret", Auth: "secret"}
	m := notify.Message{Title: "a", Targets: []notify.Target{to}}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "to", to)
	if text := fmt.Sprintf("%v %+v %#v %s", to, m, to, log.String()); strings.Contains(text, "secret") {
		t.Error(text)
	}
	if text, err := json.Marshal(m); err != nil || !strings.Contains(string(text), "secret") {
		t.Errorf("%s, %v: in a payload it has to stand", text, err)
	}
}

func newInspector(t testing.TB, rdb redis.UniversalClient, name string) *queue.Inspector {
	t.Helper()
	inspector, err := queue.NewInspector(rdb, name)
	if err != nil {
		t.Fatal(err)
	}
	return inspector
}

func newClient(t testing.TB, rdb redis.UniversalClient, name string) *queue.Client {
	t.Helper()
	client, err := queue.NewClient(rdb, name)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
