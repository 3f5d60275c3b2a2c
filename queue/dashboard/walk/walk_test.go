package walk

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// An operator's walk: the queue, why a teacher waits, a tenant paused and resumed, policies
// previewed and applied, a dead job revived, a drop explained.
func TestWalk(t *testing.T) {
	s := open(t)
	b := start(t, s.url)
	b.look(1280, false)
	redistest.Eventually(t, 20*time.Second, "jobs have died", func() bool {
		stats, err := s.inspector.Stats(t.Context())
		return err == nil && stats.Dead == 3
	})
	b.visit("/dashboard/")
	b.sees("throttled", "Rules allow", "leak 10/s", "Starts and offers a second")
	b.picture("queue")
	b.click("a", "Tenants")
	b.sees("birch", "oak", "<script>alert(1)</script>")
	b.picture("tenants")
	b.click("a", "birch")
	b.sees("teacher-42", "binds")
	b.picture("tenant")
	b.click("a", "teacher-42")
	b.sees("it waits for the user's rule", "starts count", "reply-")
	b.picture("user")

	b.click("a", "Sign in to act")
	b.do(chromedp.SendKeys("input[name=name]", "ann", chromedp.ByQuery), chromedp.SendKeys("input[name=token]", token, chromedp.ByQuery))
	b.picture("login")
	b.click("main//button", "Sign in")
	b.sees("teacher-42", "Sign out")
	b.visit("/dashboard/push/tenant?t=birch")
	b.do(chromedp.SendKeys("input[name=reason]", "their endpoint is down", chromedp.ByQuery))
	b.click("button", "Pause this tenant")
	b.sees("The tenant birch is paused for 10m.", "their endpoint is down", "by ann")
	b.picture("paused")
	b.click("nav//a", "Pauses")
	b.sees("birch", "their endpoint is down")
	b.click("button", "Resume")
	b.sees("The tenant birch is not paused any more.", "Nothing is paused.")

	b.click("nav//a", "Policies")
	b.sees("the first ones")
	b.do(chromedp.Evaluate(`document.getElementById("source").value = document.getElementById("source").value.replace("10/1m", "20/1m").replace("10/1s", "40/1s")`, nil),
		chromedp.SendKeys("input[name=reason]", "the term begins", chromedp.ByQuery))
	b.picture("policies")
	b.click("button", "Preview…")
	b.sees("What would change", "would start sooner", "waiting jobs")
	b.picture("preview")
	b.click("button", "Put this in force")
	b.sees("The next start obeys the new policies.", "the term begins")

	b.click("nav//a", "Dead")
	b.sees("out of paper", "letter-1")
	b.picture("dead")
	b.do(chromedp.Click("input[name=entry]", chromedp.ByQuery))
	b.click("button", "Revive the chosen")
	b.sees("1 of 1 job wait again")
	b.do(chromedp.Click("input[name=entry]", chromedp.ByQuery))
	b.click("button", "Delete the chosen")
	b.sees("Delete 1 job for ever?")
	b.picture("confirm")
	b.click("button", "Yes")
	b.sees("were deleted")

	b.click("nav//a", "Drops")
	b.sees("full", "elm")
	b.click("main//p/a", "full")
	b.sees("was at its capacity.")
	b.picture("drops")
	for _, tab := range []string{"Running", "Later", "Workers", "Job"} {
		b.click("nav//a", tab)
		b.reaches(strings.ToLower(tab))
		b.picture(strings.ToLower(tab))
	}
	b.done()
}

// tabInView says that the menu shows the page that is open.
const tabInView = `[...document.querySelectorAll("nav [aria-current]")].every(a => {
	const tab = a.getBoundingClientRect(), menu = a.closest("nav").getBoundingClientRect();
	return tab.left >= menu.left - 1 && tab.right <= menu.right + 1;
})`

// Every page fits on a phone, and can be read in the dark.
func TestPhone(t *testing.T) {
	s := open(t)
	b := start(t, s.url)
	redistest.Eventually(t, 20*time.Second, "jobs have started", func() bool {
		stats, err := s.inspector.Stats(t.Context())
		return err == nil && stats.Started > 20 && stats.Dead == 3
	})
	pages := []string{"", "tenants", "tenant?t=oak", "user?t=birch&u=teacher-42", "job?id=reply-29", "running", "later", "dead", "drops", "pauses", "policies", "workers"}
	for _, dark := range []bool{false, true} {
		b.look(360, dark)
		for _, page := range pages {
			name, _, _ := strings.Cut(page, "?")
			b.visit("/dashboard/push/" + page)
			b.fits()
			b.accessible()
			b.holds(tabInView)
			if dark {
				b.picture("phone-dark-" + name)
			} else {
				b.picture("phone-" + name)
			}
		}
	}
	b.look(1280, true)
	b.visit("/dashboard/push/")
	b.sees("throttled")
	b.picture("dark")
	b.done()
}

// An open page follows what happens, without being loaded again, and keeps the focus of who
// goes through it by keyboard.
func TestLive(t *testing.T) {
	s := open(t)
	b := start(t, s.url)
	b.look(1280, false)
	b.visit("/dashboard/push/")
	b.sees("throttled")
	b.do(chromedp.Evaluate("window.mark = 'the same page'", nil))
	s.must(s.inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, Until: time.Now().Add(time.Hour)}))
	b.sees("the queue is paused until", "The whole queue is paused until")
	b.holds("window.mark === 'the same page'")
	b.visit("/dashboard/push/tenants")
	b.sees("birch")
	b.do(chromedp.Evaluate("window.mark = 'the same page'; [...document.links].find(a => a.textContent === 'birch').focus()", nil))
	_, err := s.client.Enqueue(t.Context(), queue.Job{Tenant: "willow", User: "newcomer", Type: "push"})
	s.must(err)
	b.sees("willow")
	b.holds("window.mark === 'the same page' && document.activeElement.textContent === 'birch'")
	b.visit("/dashboard/push/")
	b.do(chromedp.KeyEvent(kb.Tab))
	b.holds("document.activeElement.textContent === 'Skip to the page'")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.holds("document.activeElement.id === 'main'")
	b.done()
}

// done fails if the browser has complained of anything: a script that failed, or something that
// the page may not load.
func (b *browser) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.complaints {
		b.Errorf("the browser complains: %s", text)
	}
}

// The limits by name: all, the keys of one, and one key, which is paused and resumed.
func TestLimits(t *testing.T) {
	s := open(t)
	b := start(t, s.url)
	b.look(1280, false)
	b.visit("/dashboard/")
	b.click("nav//a", "Limits")
	b.sees("domain", "campaign", "calls", "one counter for all", "100 %")
	b.picture("limits")
	b.click("main//a", "domain")
	b.sees("small.example", "<i>.example", "window 40/1h", "Has held back")
	b.picture("limit")
	b.click("main//a", "small.example")
	b.sees("What its rules say", "of 40 left")
	b.click("a", "Sign in to act")
	b.do(chromedp.SendKeys("input[name=name]", "ann", chromedp.ByQuery), chromedp.SendKeys("input[name=token]", token, chromedp.ByQuery))
	b.click("main//button", "Sign in")
	b.sees("What its rules say", "Sign out")
	b.do(chromedp.SendKeys("input[name=reason]", "421 from all their servers", chromedp.ByQuery))
	b.click("button", "Pause this key")
	b.sees("The limit domain small.example is paused for 10m.", "421 from all their servers")
	b.accessible()
	b.picture("key")
	for _, page := range []string{"limits", "limit?l=domain", "key?l=domain&k=small.example"} {
		for _, dark := range []bool{false, true} {
			for _, width := range []int64{390, 1280} {
				b.look(width, dark)
				b.visit("/dashboard/push/" + page)
				b.fits()
				b.accessible()
				b.picture(fmt.Sprintf("%.8s-%d-dark-%v", page, width, dark))
			}
		}
	}
	b.look(1280, false)
	b.visit("/dashboard/push/key?l=domain&k=small.example")
	b.click("button", "Resume")
	b.sees("The limit domain small.example is not paused any more.")
	b.done()
}
