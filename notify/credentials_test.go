package notify_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
)

// A fleet of four shows Apple one token at a time, and a new one not too often; the
// fake would refuse a second one within 20 minutes.
func TestAFleetSharesAToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.Mini(t)
		p, err := notifytest.NewAPNs(notifytest.Options{})
		must(t, err)
		var fleet []notify.Sender
		for range 4 {
			fleet = append(fleet, apnsSender(t, p, rdb))
			p.Key = append(slices.Clone(p.Key), '\n') // copies of a file differ in such things
		}
		for range 12 { // four hours, a burst every twenty minutes
			var sends sync.WaitGroup
			for _, s := range fleet {
				for range 5 {
					sends.Go(func() {
						if o := s.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, notify.Target{Token: "0123456789abcdef"}); o.Action != notify.Done {
							t.Errorf("outcome %+v", o)
						}
					})
				}
			}
			sends.Wait()
			time.Sleep(20*time.Minute + time.Second)
		}
		if len(p.Refusals()) > 0 {
			t.Errorf("refused: %q", p.Refusals())
		}
		for _, key := range rdb.Keys(t.Context(), "*").Val() {
			text := rdb.Get(t.Context(), key).Val()
			if strings.Contains(text, "ey") && strings.Count(text, ".") > 1 || strings.Contains(text, p.KeyID) {
				t.Errorf("%s holds a token that anybody can read", key)
			}
			if strings.HasSuffix(key, ":minting") {
				t.Errorf("%s: the turn was not given back", key)
			}
			if !strings.HasPrefix(key, "wc:{notify}:") {
				t.Errorf("%s is not where the ACL allows it", key)
			}
			if rdb.TTL(t.Context(), key).Val() <= 0 {
				t.Errorf("%s never expires", key)
			}
		}
	})
}

// Two that share nothing are told so by Apple, and pause rather than mint again.
func TestTwoTokensAreTooMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := notifytest.NewAPNs(notifytest.Options{})
		must(t, err)
		m, to := notify.Message{ID: "1", Title: "a"}, notify.Target{Token: "0123456789abcdef"}
		if o := apnsSender(t, p, nil).Send(t.Context(), m, to); o.Action != notify.Done {
			t.Errorf("outcome %+v", o)
		}
		time.Sleep(time.Minute)
		if o := apnsSender(t, p, nil).Send(t.Context(), m, to); o.Action != notify.Pause || o.After != 20*time.Minute {
			t.Errorf("outcome %+v, want a pause of 20 minutes", o)
		}
	})
}

// A token that the provider does not take any more is replaced once; a new one that is
// not taken either is no accident.
func TestRefusedToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := fcmStage(t)
		send := func() notify.Outcome {
			return s.sender.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, s.target)
		}
		if o := send(); o.Action != notify.Done {
			t.Fatalf("outcome %+v", o)
		}
		time.Sleep(10 * time.Minute)
		p.Revoke()
		if o := send(); o.Action != notify.Defer || o.After != time.Second {
			t.Errorf("a revoked token: %+v, want it deferred a second", o)
		}
		if o := send(); o.Action != notify.Done {
			t.Errorf("with a new one: %+v", o)
		}
		p.Revoke()
		if o := send(); o.Action != notify.Halt {
			t.Errorf("a new one is refused: %+v, want a halt", o)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := apnsStage(t, redistest.Mini(t))
		expired := func(notifytest.Received) *notifytest.Answer { return notifytest.Reason(403, "ExpiredProviderToken") }
		for _, want := range []notify.Action{notify.Done, notify.Halt, notify.Defer, notify.Done} {
			switch want {
			case notify.Halt: // at once: the token is seconds old
				s.host.Answer(expired)
			case notify.Defer:
				time.Sleep(21 * time.Minute)
			case notify.Done:
				s.host.Answer(nil)
			}
			if o := s.sender.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, s.target); o.Action != want {
				t.Errorf("outcome %+v, want %s", o, want)
			}
		}
	})
}

// Google gives a fleet one access token an hour; an account that it does not know halts.
func TestAccessToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.Mini(t)
		p, err := notifytest.NewFCM(notifytest.Options{})
		must(t, err)
		m, to := notify.Message{ID: "1", Title: "a"}, notify.Target{Token: "device"}
		open := func(account []byte) notify.Sender {
			s, err := notify.NewFCM(notify.FCMConfig{Credentials: account, Redis: rdb, Wire: wire(&p.Host)})
			must(t, err)
			closeLater(t, &p.Host, s)
			return s
		}
		for range 3 {
			if o := open(p.ServiceAccount).Send(t.Context(), m, to); o.Action != notify.Done {
				t.Errorf("outcome %+v", o)
			}
		}
		if p.Minted() != 1 {
			t.Errorf("%d access tokens for three workers, want 1", p.Minted())
		}
		stranger := strings.Replace(string(p.ServiceAccount), "push@", "other@", 1)
		if o := open([]byte(stranger)).Send(t.Context(), m, to); o.Action != notify.Halt || !strings.Contains(o.Err.Error(), "invalid_grant") {
			t.Errorf("outcome %+v, want a halt", o)
		}
	})
}

// Without the fleet's Redis nothing is minted, and nothing is lost.
func TestNoRedisNoToken(t *testing.T) {
	gone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer gone.Close()
	s := apnsStage(t, gone)
	o := s.sender.Send(context.Background(), notify.Message{ID: "1", Title: "a"}, s.target)
	if o.Action != notify.Defer || o.After <= 0 || o.Reached || len(s.host.Received()) != 0 {
		t.Errorf("outcome %+v, want it deferred: no attempt was made", o)
	}
}

// A signature for push services is made anew before it ends.
func TestVAPIDTokensEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := webpushStage(t)
		for range 4 {
			if o := s.sender.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, s.target); o.Action != notify.Done {
				t.Errorf("%+v, refused %q", o, s.host.Refusals())
			}
			time.Sleep(5 * time.Hour)
		}
	})
}
