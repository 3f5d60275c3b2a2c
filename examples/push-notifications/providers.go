package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
)

// Trouble comes on a timer: oak's provider asks for a pause, cedar's takes long for a while,
// one device is slow, and one is gone.
const (
	quotaSchool = "oak"
	quotaFrom   = 3 * time.Second
	quotaUntil  = 6 * time.Second
	hangSchool  = "cedar"
	hangFrom    = 9 * time.Second
	hangUntil   = 13 * time.Second
	hanging     = 2 * time.Second // how long cedar's provider takes then
	slowUser    = "parent-7"
	goneUser    = "parent-9"
	sending     = 30 * time.Millisecond // how long a provider takes
)

// providers are three stand-ins for real ones, which speak the real protocols: oak sends
// through FCM, birch to Apple's devices, cedar to browsers.
type providers struct {
	fcm     *notifytest.FCM
	apns    *notifytest.APNs
	web     *notifytest.WebPush
	senders map[string]notify.Sender // by school
	yours   *yours                   // nil if you brought no devices
	closers []io.Closer

	mu      sync.Mutex
	targets map[string][]notify.Target // by school and user
	sent    []sent                     // by number
	gone    []string                   // users whose device is
	reached map[string]time.Time       // by job: the start that first reached a device
}

// A sent message is known by its number, which travels in its data.
type sent struct {
	school, user string
	expires      time.Time
}

func openProviders(rdb *redis.Client) (p *providers, err error) {
	p = &providers{
		targets: make(map[string][]notify.Target), senders: make(map[string]notify.Sender), reached: make(map[string]time.Time),
	}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.fcm, err = notifytest.NewFCM(notifytest.Options{}); err != nil {
		return p, err
	}
	if p.apns, err = notifytest.NewAPNs(notifytest.Options{}); err != nil {
		return p, err
	}
	if p.web, err = notifytest.NewWebPush(notifytest.Options{}); err != nil {
		return p, err
	}
	fcm, err := notify.NewFCM(notify.FCMConfig{Credentials: p.fcm.ServiceAccount, Redis: rdb, Wire: wire(&p.fcm.Host)})
	if err != nil {
		return p, err
	}
	apns, err := notify.NewAPNs(notify.APNsConfig{
		Key: p.apns.Key, KeyID: p.apns.KeyID, TeamID: p.apns.TeamID, Topic: p.apns.Topic, Redis: rdb, Wire: wire(&p.apns.Host),
	})
	if err != nil {
		return p, err
	}
	web, err := notify.NewWebPush(notify.WebPushConfig{Key: p.web.Key, Subject: "mailto:push@cedar.example", Wire: wire(&p.web.Host)})
	if err != nil {
		return p, err
	}
	p.senders["oak"], p.senders["birch"], p.senders["cedar"] = fcm, apns, web
	p.closers = []io.Closer{fcm, apns, web}
	return p, nil
}

func wire(h *notifytest.Host) notify.Wire {
	return notify.Wire{URL: h.URL, RootCAs: h.RootCAs, Dial: h.Dial}
}

// hosts are the providers by school, as far as they are open.
func (p *providers) hosts() map[string]*notifytest.Host {
	hosts := make(map[string]*notifytest.Host)
	if p.fcm != nil {
		hosts["oak"] = &p.fcm.Host
	}
	if p.apns != nil {
		hosts["birch"] = &p.apns.Host
	}
	if p.web != nil {
		hosts["cedar"] = &p.web.Host
	}
	return hosts
}

func (p *providers) close() {
	for _, c := range p.closers {
		c.Close()
	}
	for _, h := range p.hosts() {
		h.Close()
	}
}

// begin starts the timer of the trouble.
func (p *providers) begin(began time.Time) {
	for school, host := range p.hosts() {
		host.Answer(func(r notifytest.Received) *notifytest.Answer {
			since := r.At.Sub(began)
			_, user := p.whose(r)
			switch {
			case school == quotaSchool && since >= quotaFrom && since < quotaUntil:
				answer := notifytest.FCMError(429, "QUOTA_EXCEEDED")
				answer.RetryAfter = strconv.Itoa(int((quotaUntil - since + time.Second - 1) / time.Second))
				return answer
			case school == quotaSchool && user == goneUser:
				return notifytest.Unregistered()
			case school == quotaSchool && user == slowUser:
				return &notifytest.Answer{Delay: 2 * time.Second}
			case school == hangSchool && since >= hangFrom && since < hangUntil:
				return &notifytest.Answer{Delay: hanging}
			}
			return &notifytest.Answer{Delay: sending}
		})
	}
}

// Send is the attempt of the job's school.
func (p *providers) Send(ctx context.Context, m notify.Message, to notify.Target) notify.Outcome {
	info, _ := queue.FromContext(ctx)
	o := p.send(ctx, info, m, to)
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, before := p.reached[info.ID]; !before && (o.Action == notify.Done || o.Reached) {
		p.reached[info.ID] = info.Started
	}
	return o
}

// seen tells whether it was this start of a job that brought the user the message.
func (p *providers) seen(job queue.Info) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, reached := p.reached[job.ID]
	return reached && at.Equal(job.Started)
}

func (p *providers) send(ctx context.Context, job queue.Info, m notify.Message, to notify.Target) notify.Outcome {
	if p.yours != nil && job.Tenant == busySchool && job.User == busyTeacher {
		return p.yours.Send(ctx, m, to)
	}
	sender := p.senders[job.Tenant]
	if sender == nil {
		return notify.Outcome{Action: notify.Drop, Err: errors.New("a school without a provider")}
	}
	return sender.Send(ctx, m, to)
}

// handler delivers messages, and keeps the users whose devices are gone.
func (p *providers) handler(rdb *redis.Client, log *slog.Logger) (asynq.Handler, error) {
	return notify.NewHandler(p, notify.HandlerConfig{
		Redis: rdb, Logger: log,
		Forget: func(_ context.Context, job queue.Info, _ notify.Target, _ error) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.gone = append(p.gone, job.User+" at "+job.Tenant)
			return nil
		},
	})
}

// message is the payload of a job: a numbered message to the user's devices.
func (p *providers) message(school, user, kind, collapse string, expires time.Time) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	targets, err := p.devices(school, user)
	if err != nil {
		return nil, err
	}
	n := strconv.Itoa(len(p.sent))
	p.sent = append(p.sent, sent{school, user, expires})
	return json.Marshal(notify.Message{
		Title: school + ": " + strings.TrimPrefix(kind, "push:"), Body: "for " + user, Data: map[string]string{"n": n}, CollapseKey: collapse, Expires: expires, Targets: targets,
	})
}

// devices are those of a user: one, and two of the busy teacher.
func (p *providers) devices(school, user string) ([]notify.Target, error) {
	name := school + " " + user
	if known := p.targets[name]; known != nil {
		return known, nil
	}
	var targets []notify.Target
	switch school {
	case "birch":
		targets = []notify.Target{{Token: hex.EncodeToString([]byte(name))}}
		if user == busyTeacher {
			targets = append(targets, notify.Target{Token: hex.EncodeToString([]byte(name + " tablet"))})
		}
	case "cedar":
		s, err := p.web.Subscribe(name)
		if err != nil {
			return nil, err
		}
		targets = []notify.Target{{Token: s.Endpoint, P256dh: s.P256dh, Auth: s.Auth}}
	default:
		targets = []notify.Target{{Token: "fcm:" + name}}
	}
	p.targets[name] = targets
	return targets, nil
}

// whose returns the number of a message that arrived, and its user.
func (p *providers) whose(r notifytest.Received) (n int, user string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := strconv.Atoi(r.Data["n"])
	if err != nil || n < 0 || n >= len(p.sent) {
		return -1, ""
	}
	return n, p.sent[n].user
}
