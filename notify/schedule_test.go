package notify_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
)

// arrivals are when the requests came to a host, since the school has opened.
func (s *school) arrivals(h *notifytest.Host) (all []time.Duration) {
	for _, r := range h.Received() {
		all = append(all, r.At.Sub(s.begin))
	}
	return all
}

// A message to a phone whose provider fails twice, and to a webhook that is down for ten minutes: the phone has it as early as
// without the webhook, and the webhook is called as often, and as late, as without the phone.
func TestAWebhookThatIsDownDelaysNoPhone(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	scene := func(phoneToo, hookToo bool) (phone, hook []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			fcm, hooks := openCrowd(t, "fcm"), openCrowd(t, "webhook")
			h, err := notify.NewWebhook(notify.WebhookConfig{Wire: wire(hooks.host)})
			must(t, err)
			closeLater(t, hooks.host, h)
			all, err := notify.NewProviders(notify.Provider{Sender: fcm.sender}, notify.Provider{Sender: h})
			must(t, err)
			s := newSchool(t, all, notify.HandlerConfig{Shared: true}, queue.Policy{})
			hooks.host.Answer(func(r notifytest.Received) *notifytest.Answer {
				if r.At.Sub(s.begin) > 10*time.Minute {
					return nil
				}
				return notifytest.HTML(500)
			})
			fails := 3
			fcm.host.Answer(func(notifytest.Received) *notifytest.Answer {
				if fails--; fails >= 0 {
					return notifytest.HTML(500)
				}
				return nil
			})
			var targets []notify.Target
			if phoneToo {
				targets = append(targets, of("fcm", fcm.target(0)))
			}
			if hookToo {
				targets = append(targets, of("webhook", hooks.target(0)))
			}
			s.notify("u", notify.Message{Title: "a", Targets: targets})
			time.Sleep(45 * time.Minute)
			phone, hook = s.arrivals(fcm.host), s.arrivals(hooks.host)
			if stats := s.stats(); stats.Dead > 0 || stats.Waiting+stats.Later > 0 {
				t.Errorf("with a phone %v, with a webhook %v: %+v", phoneToo, hookToo, stats)
			}
		})
		return phone, hook
	}
	phone, _ := scene(true, false)
	_, hook := scene(false, true)
	phoneBeside, hookBeside := scene(true, true)
	if len(phone) != 4 || len(phoneBeside) != 4 || phoneBeside[3] > 31*time.Second {
		t.Errorf("requests for the phone alone %v, beside the webhook %v", phone, phoneBeside)
	}
	if len(hookBeside) != len(hook) {
		t.Errorf("requests to the webhook alone %v, beside the phone %v", hook, hookBeside)
	}
	for i := range min(len(hook), len(hookBeside)) {
		if alone, beside := hook[i], hookBeside[i]; beside < alone*4/5-10*time.Millisecond || beside > alone*5/4+3*time.Second {
			t.Errorf("request %d to the webhook after %v alone, %v beside the phone", i+1, alone, beside)
		}
	}
}

// Each device has as many attempts as the job, also if another one takes longer for its own. The message is dead when
// nothing is left to attempt, and a revived one goes to the device that has failed.
func TestEachDeviceHasItsAttempts(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	slow := func(after time.Duration) notify.Outcome {
		return notify.Outcome{Action: notify.Retry, Err: errors.New("not yet"), After: after}
	}
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		s := newSchool(t, r, notify.HandlerConfig{Shared: true}, queue.Policy{})
		r.set("a", slow(time.Second))
		r.set("b", slow(time.Hour))
		job, err := notify.NewJob("school", "u", two("m"))
		must(t, err)
		job.MaxAttempts = 3
		_, err = newClient(t, s.rdb, "push").Enqueue(t.Context(), job)
		must(t, err)
		time.Sleep(time.Minute)
		if got := r.sent(); got != "[m a m a m a m b]" {
			t.Errorf("within a minute: %v", got)
		}
		time.Sleep(90 * time.Minute)
		r.set("b", ok)
		time.Sleep(time.Hour)
		if got, stats := r.sent(), s.stats(); got != "[m b m b]" || stats.Dead != 1 {
			t.Errorf("after that: %v; %d dead, want one, for the device that has failed three times", got, stats.Dead)
		}
		r.set("a", ok)
		s.revive(t)
		if got := r.sent(); got != "[m a]" {
			t.Errorf("revived: %v", got)
		}
	})
}

// Devices that are due at nearly the same time share an attempt of the job.
func TestDevicesThatFailTogetherAreAttemptedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &timed{}
		s := newSchool(t, r, notify.HandlerConfig{Shared: true}, queue.Policy{})
		var targets []notify.Target
		for i := range 20 {
			targets = append(targets, notify.Target{Token: fmt.Sprint(i)})
		}
		s.notify("u", notify.Message{Title: "m", Targets: targets})
		time.Sleep(30 * time.Minute)
		if attempts := r.attempts(); len(attempts) != 6 || len(r.at) != 6*len(targets) {
			t.Errorf("%d attempts at 20 devices, at %v", len(r.at), attempts)
		}
	})
}

// A timed sender fails for each device, which may be attempted again after five minutes and up to a tenth more.
type timed struct {
	recorder
	at []time.Time
}

func (r *timed) Send(_ context.Context, _ notify.Message, to notify.Target) notify.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = append(r.at, time.Now())
	return notify.Outcome{Action: notify.Retry, Err: errors.New("not yet"), After: 5*time.Minute + time.Duration(len(to.Token)*len(r.at)%30)*time.Second}
}

// attempts returns the instants at which it was called.
func (r *timed) attempts() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Compact(r.at)
}

// A forgetful Redis takes no schedules of devices.
type forgetful struct{}

func (forgetful) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (forgetful) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (forgetful) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Name() == "hset" && strings.Contains(fmt.Sprint(cmd.Args()...), "notify:job:") {
				return errors.New("OOM command not allowed")
			}
		}
		return next(ctx, cmds)
	}
}

// Where schedules cannot be written, a message has its attempts all the same, and no more.
func TestAttemptsEndWithoutALedger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		rdb := redistest.Mini(t)
		rdb.AddHook(forgetful{})
		s := newLimitedSchool(t, rdb, r, notify.HandlerConfig{Shared: true}, queue.Policy{}, nil)
		failing := notify.Outcome{Action: notify.Retry, Err: errors.New("not yet"), After: time.Second}
		r.set("a", failing)
		r.set("b", failing)
		job, err := notify.NewJob("school", "u", two("m"))
		must(t, err)
		job.MaxAttempts = 3
		_, err = newClient(t, s.rdb, "push").Enqueue(t.Context(), job)
		must(t, err)
		time.Sleep(10 * time.Minute)
		if got, stats := r.sent(), s.stats(); got != "[m a m a m a m b m b m b]" || stats.Dead != 1 {
			t.Errorf("%v; %d dead, want three attempts at each device", got, stats.Dead)
		}
	})
}
