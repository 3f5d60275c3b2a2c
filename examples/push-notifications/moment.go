package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// Birch has families in two zones whose clocks are twelve hours apart, all year: while it is day at one of them it is night at the
// other. Their nights are real ones: time is not scaled for them.
var zones = []string{"America/Lima", "Asia/Bangkok"}

const (
	familiesEach = 10
	noteFrom     = 5 * time.Second

	threadUser    = "teacher-7"
	threadFrom    = 16 * time.Second
	threadReplies = 20
)

// A night is when families want nothing, and the day is the rest of their time.
type night struct{ quiet, day string }

// nightAt returns the night of all families: one that neither begins nor ends within the next minutes.
func nightAt(now time.Time) night {
	if soon := now.UTC().Add(longer); soon.Hour()%12 == 0 && soon.Minute() < 10 {
		return night{"18:00-06:00", "06:00-18:00"}
	}
	return night{"19:00-07:00", "07:00-19:00"}
}

// moments are what the limits know about the right moment: notes wait for the end of a family's night, and replies of one thread that
// come within a minute are one notification.
func moments(p *queue.Policies) {
	p.Limits = map[string]queue.Limit{
		"notes": {Types: []string{"push:note"}, Key: []string{"tenant", "user"}, Rules: []throttle.Rule{throttle.UserHours("", "")}},
	}
	of := p.Policies[busySchool]
	of.Digest = queue.Digest{Wait: here(time.Minute)}
	p.Policies[busySchool] = of
}

// notes are one to each family, one after the other. They say by whose clock the family lives.
func notes(n night) (acts []act) {
	for i := range familiesEach {
		a := act{at: noteFrom + time.Duration(2*i)*chatEvery}
		for _, zone := range zones {
			note := job(busySchool, fmt.Sprintf("family-%d in %s", i+1, zone), "note")
			note.ID, note.Zone, note.Quiet = noteID(zone, i), zone, n.quiet
			a.jobs = append(a.jobs, note)
		}
		acts = append(acts, a)
	}
	acts[0].says = fmt.Sprintf("birch: a note to %d families in each of two zones; in one of them it is night", familiesEach)
	return acts
}

func livesIn(user, zone string) bool { return strings.HasSuffix(user, " in "+zone) }

func noteID(zone string, i int) string { return fmt.Sprintf("note-%s-%d", zone, i+1) }

// thread are replies that share a digest key.
func thread() (acts []act) {
	for i := range threadReplies {
		reply := job(busySchool, threadUser, "thread")
		reply.DigestKey = "thread-12"
		acts = append(acts, act{at: threadFrom + time.Duration(i)*chatEvery, jobs: []queue.Job{reply}})
	}
	acts[0].says = fmt.Sprintf("birch: %d replies in one thread of %s, 100 ms apart; they are one notification", threadReplies, threadUser)
	return acts
}

// printMoments shows when the notes and the replies arrived, and returns which notes wait for a morning.
func (s *story) printMoments(ctx context.Context, out io.Writer, starts []start) (asleep []string, err error) {
	fmt.Fprintf(out, "\nThe right moment:\n\n")
	for _, zone := range zones {
		where, err := time.LoadLocation(zone)
		if err != nil {
			return nil, err
		}
		started := 0
		for _, st := range starts {
			if livesIn(st.User, zone) {
				started++
			}
		}
		waiting := 0
		var until time.Time
		for i := range familiesEach {
			state, _, err := s.inspector.ExplainJob(ctx, noteID(zone, i))
			if err != nil {
				return nil, err
			}
			if state.State == "waiting" {
				waiting++
				asleep, until = append(asleep, noteID(zone, i)), state.Estimate.Start
			}
		}
		text := fmt.Sprintf("%d notes arrived", started)
		if waiting > 0 {
			text = fmt.Sprintf("%d notes wait until %s there", waiting, until.In(where).Format("15:04"))
		}
		fmt.Fprintf(out, "  %-14s it was %s there: %s\n", zone, s.began.In(where).Format("15:04"), text)
	}
	for _, st := range starts {
		if st.Tenant == busySchool && st.User == threadUser {
			fmt.Fprintf(out, "  %-14s %d replies came as one notification, %s after the first of them\n", threadUser, len(st.Digest), span(st.Started.Sub(st.Digest[0].Offered)))
		}
	}
	return asleep, nil
}

// nights checks that no note came by night.
func (s *story) nights(starts []start, asleep int) ruling {
	r := ruling{who: "a family", limit: "no note at night, by its own clock"}
	byDay := 0
	for _, zone := range zones {
		var events []throttle.Event
		for _, st := range starts {
			if livesIn(st.User, zone) {
				events = append(events, throttle.Event{Subject: st.User, At: st.Started})
			}
		}
		byDay += len(events)
		r.broken = append(r.broken, describe(throttle.Verify(events, []throttle.Rule{throttle.Hours(s.night.day, "", zone)}))...)
	}
	r.observed = fmt.Sprintf("%d by day, %d wait for the morning", byDay, asleep)
	return r
}
