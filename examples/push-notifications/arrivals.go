package main

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/throttle"
)

// onTheWay is how much a request may be delayed between its start and the provider. What
// is measured there can be that much closer together.
const onTheWay = 60 * time.Millisecond

// An arrival is a message that a provider took, at its first device.
type arrival struct {
	n            int
	school, user string
	at           time.Time
}

// providerRulings are what the providers have to say: they know nothing of the queue.
func (s *story) providerRulings() []ruling {
	arrivals, twice, refused := s.arrivals()
	rulings := append(userLimits("provider", arrivals),
		ruling{who: "provider", limit: "no message twice on a device", observed: fmt.Sprintf("%s messages arrived", thousands(len(arrivals))), broken: twice},
		ruling{who: "provider", limit: "nothing wrong in any request", observed: "signatures, tokens, headers verified", broken: refused},
		s.quiet(), s.inTime(arrivals),
	)
	if s.providers.yours != nil {
		rulings = append(rulings, s.providers.yours.rulings()...)
	}
	return rulings
}

// userLimits check the limits of every user on what arrived.
func userLimits(where string, arrivals []arrival) []ruling {
	var events []throttle.Event
	for _, a := range arrivals {
		events = append(events, throttle.Event{Subject: a.user + " at " + a.school, At: a.at})
	}
	slices.SortFunc(events, func(a, b throttle.Event) int { return a.At.Compare(b.At) })
	window, spacing := here(time.Minute)-onTheWay, here(3*time.Second)-onTheWay
	most, who := busiest(events, window)
	return []ruling{
		{
			who: where, limit: fmt.Sprintf("a user's 10 in any %v", window),
			observed: fmt.Sprintf("%d at most: %s", most, who),
			broken:   describe(throttle.Verify(events, []throttle.Rule{throttle.Window(10, window)})),
		},
		{
			who: where, limit: fmt.Sprintf("%v between a user's", spacing),
			observed: fmt.Sprintf("%.1f ms at least", millis(closest(events))),
			broken:   describe(throttle.Verify(events, []throttle.Rule{throttle.Spacing(spacing)})),
		},
	}
}

// arrivals are the messages that the providers took, what came to a device twice, and
// what they objected to.
func (s *story) arrivals() (all []arrival, twice, refused []string) {
	for school, host := range s.providers.hosts() {
		first, devices := make(map[int]bool), make(map[string]bool)
		for _, r := range host.Received() {
			if r.Refused != "" {
				refused = append(refused, r.Refused)
			}
			n, user := s.providers.whose(r)
			if r.Status != 200 || n < 0 {
				continue
			}
			device := strconv.Itoa(n) + " " + r.Device
			if devices[device] {
				twice = append(twice, fmt.Sprintf("message %d of %s at %s", n, user, school))
			}
			devices[device] = true
			if !first[n] {
				first[n] = true
				all = append(all, arrival{n, school, user, r.At})
			}
		}
	}
	return all, twice, refused
}

// believing is how long the sender may take to believe that a provider asks all to wait:
// it takes the word of several devices.
const believing = 500 * time.Millisecond

// quiet checks that a provider which asked for a pause was left alone for so long.
func (s *story) quiet() ruling {
	r := ruling{who: "provider", limit: "nothing during Retry-After"}
	var from, until time.Time
	asked := 0
	received := s.providers.hosts()[quotaSchool].Received()
	slices.SortFunc(received, func(a, b notifytest.Received) int { return a.At.Compare(b.At) })
	for _, got := range received {
		if !from.IsZero() && got.At.Sub(from) > believing && got.At.Before(until) {
			r.broken = append(r.broken, fmt.Sprintf("%v after the 429", got.At.Sub(from)))
		}
		if got.Status == 429 {
			if asked++; from.IsZero() {
				from, until = got.At, s.began.Add(quotaUntil)
			}
		}
	}
	r.observed = fmt.Sprintf("%d asked to wait, then none for %.1f s", asked, until.Sub(from).Seconds())
	return r
}

// inTime checks that nothing came when it had lost its point.
func (s *story) inTime(arrivals []arrival) ruling {
	r := ruling{who: "provider", limit: "nothing after its expiry"}
	expiring := 0
	for _, a := range arrivals {
		expires := s.providers.sent[a.n].expires
		if expires.IsZero() {
			continue
		}
		expiring++
		if a.at.Sub(expires) > onTheWay {
			r.broken = append(r.broken, fmt.Sprintf("%v late: %s at %s", a.at.Sub(expires), a.user, a.school))
		}
	}
	r.observed = fmt.Sprintf("%d that expire came in time", expiring)
	return r
}
