package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/waterclock/waterclock/queue"
)

// An act is something that happens: jobs are offered, all in one batch.
type act struct {
	at   time.Duration // since the beginning, in this program's time
	says string        // what the board says about it; empty for everyday business
	jobs []queue.Job
}

// The busy teacher, whose day the verdict draws.
const (
	busySchool  = "birch"
	busyTeacher = "teacher-42"
	busyFrom    = 4 * time.Second
	busyJobs    = 60
)

const (
	chatUntil = 24 * time.Second
	chatEvery = 100 * time.Millisecond
)

// timetable is everything that the batch client offers, in order of time.
func timetable(parents int, n night) []act {
	acts := []act{
		{
			at:   2 * time.Second,
			says: fmt.Sprintf("oak sends an announcement to %s parents, in one go", thousands(parents)),
			jobs: toEach(parents, "oak", "parent", "announcement"),
		},
		{
			at:   busyFrom,
			says: fmt.Sprintf("birch: %d replies arrive for %s at once", busyJobs, busyTeacher),
			jobs: times(busyJobs, job(busySchool, busyTeacher, "reply")),
		},
		{
			at:   8 * time.Second,
			says: "cedar reminds 200 parents of an outing, but at most 120 may wait",
			jobs: toEach(200, "cedar", "parent", "reminder"),
		},
		{
			at:   quotaFrom,
			says: "oak's provider answers 429, Retry-After: 3; oak waits, the others do not notice",
		},
		{
			at:   hangFrom,
			says: fmt.Sprintf("cedar's provider takes %v for each message; cedar holds half of the places, the others do not notice", hanging),
		},
		{
			at:   12 * time.Second,
			says: "oak: 5 urgent notices to bus drivers (priority high) overtake the announcement",
			jobs: urgent(toEach(5, "oak", "driver", "urgent")),
		},
	}
	acts = append(acts, badges(15*time.Second)...)
	acts = append(acts, notes(n)...)
	acts = append(acts, thread()...)
	acts = append(acts, chat()...)
	slices.SortStableFunc(acts, func(a, b act) int { return int(a.at - b.at) })
	return acts
}

// chat is the everyday business of birch: ten messages a second, a third of its leak rate.
func chat() (acts []act) {
	for i := 0; time.Duration(i)*chatEvery < chatUntil; i++ {
		user := fmt.Sprintf("parent-%d", i%60)
		acts = append(acts, act{at: time.Duration(i) * chatEvery, jobs: []queue.Job{job(busySchool, user, "chat")}})
	}
	return acts
}

// badges are 30 updates of one unread counter. Only the last matters: with a collapse
// key a newer one takes the place of the one that waits.
func badges(from time.Duration) (acts []act) {
	for i := range 30 {
		badge := job("oak", "principal", "badge")
		badge.CollapseKey = "unread"
		acts = append(acts, act{at: from + time.Duration(i)*chatEvery, jobs: []queue.Job{badge}})
	}
	acts[0].says = "oak: 30 updates of the principal's unread badge, of which only the last matters"
	return acts
}

func job(school, user, kind string) queue.Job {
	return queue.Job{Tenant: school, User: user, Type: "push:" + kind}
}

func times(n int, j queue.Job) []queue.Job { return slices.Repeat([]queue.Job{j}, n) }

// toEach is one job for each of n users.
func toEach(n int, school, role, kind string) []queue.Job {
	jobs := make([]queue.Job, n)
	for i := range jobs {
		jobs[i] = job(school, fmt.Sprintf("%s-%d", role, i+1), kind)
	}
	return jobs
}

func urgent(jobs []queue.Job) []queue.Job {
	for i := range jobs {
		jobs[i].Priority = queue.High
	}
	return jobs
}
