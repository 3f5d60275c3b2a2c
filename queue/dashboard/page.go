package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/access"
)

// A page is what a template is given.
type page struct {
	Title   string
	Tab     string // which entry of the menu it belongs to
	Queue   string
	Queues  []string // that can be chosen
	Base    string   // path of the queue's pages
	Self    string   // its own path and query
	Live    bool     // it changes while it is open
	Session *session
	Author  string // who has signed in
	Acts    bool   // and may act in the queue
	Form    string // what every form has to carry
	Steered bool   // there are tokens: somebody can sign in
	Done    string // what was done just now
	Data    any
}

// A reader reads what a page shows. It asks Redis for so much as the page holds.
type reader func(ctx context.Context, w *watched, q url.Values) (any, error)

// pagesOf are the pages of a queue by their paths.
var pagesOf = map[string]reader{
	"tenants": readTenants, "tenant": readTenant, "user": readUser, "job": readJob, "running": readRunning,
	"later": readLater, "dead": readDead, "drops": readDrops, "pauses": readPauses, "policies": readPolicies,
	"workers": readWorkers, "limits": readLimits, "limit": readLimit, "key": readKey,
}

// within are pages that belong to the entry of another one in the menu.
var within = map[string]string{"limit": "limits", "key": "limits"}

// show serves a page out of what its reader has read a moment ago.
func (d *Dashboard) show(name string, read reader) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		of := d.queues[r.PathValue("queue")]
		if of == nil {
			d.fail(w, r, notFound("This dashboard does not show such a queue."))
			return
		}
		if _, err := r.Cookie(doneCookie); err == nil && d.session(r) != nil {
			of.cache.forget() // what was done, perhaps at another dashboard, is to be seen
		}
		q := r.URL.Query()
		data, err := of.cache.get(r.Context(), reading{name + "?" + q.Encode(), pageAge, func(ctx context.Context) (any, error) { return read(ctx, of, q) }})
		if err != nil {
			d.fail(w, r, err)
			return
		}
		p := d.page(w, r)
		p.Title, p.Tab, p.Live, p.Data = strings.ToUpper(name[:1])+name[1:], cmp.Or(within[name], name), name != "policies", data
		d.render(w, name, p, http.StatusOK)
	}
}

// page returns what all pages have.
func (d *Dashboard) page(w http.ResponseWriter, r *http.Request) page {
	p := page{Queue: r.PathValue("queue"), Self: r.URL.RequestURI(), Steered: d.keys != nil, Session: d.session(r)}
	p.Base, p.Queues = d.base(p.Queue), d.shownTo(p.Session)
	if p.Session != nil {
		p.Author, p.Acts, p.Form = p.Session.author(), p.Session.token.May(access.Steer, p.Queue), p.Session.form
	}
	if cookie, err := r.Cookie(doneCookie); err == nil && r.Method == http.MethodGet {
		text, _ := base64.RawURLEncoding.DecodeString(cookie.Value)
		p.Done = string(text)
		http.SetCookie(w, d.cookie(r, doneCookie, "", -time.Second))
	}
	return p
}

// doneCookie carries what was done to the page that is shown after it.
const doneCookie = "waterclock_done"

// render writes a page, or nothing of it.
func (d *Dashboard) render(w http.ResponseWriter, name string, p page, status int) {
	var b bytes.Buffer
	if err := d.pages.ExecuteTemplate(&b, name, p); err != nil {
		d.log.Error("a page of the dashboard cannot be shown", "page", name, "err", err)
		http.Error(w, "this page cannot be shown; see the log", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = b.WriteTo(w)
}

// A notFound says what is not there.
type notFound string

func (n notFound) Error() string { return string(n) }

// A refusal says why something is not done, and with which status.
type refusal struct {
	status int
	text   string
}

func (r refusal) Error() string { return r.text }

// fail shows what went wrong.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, err error) {
	var missing notFound
	var refused refusal
	if errors.Is(err, queue.ErrInvalidArgument) {
		err = refusal{http.StatusBadRequest, err.Error()}
	}
	status, title := http.StatusServiceUnavailable, "The queue cannot be read"
	switch {
	case errors.As(err, &missing):
		status, title = http.StatusNotFound, "Not found"
	case errors.As(err, &refused):
		status, title = refused.status, "Not done"
	case r.Context().Err() != nil:
		return // nobody waits for it
	}
	p := d.page(w, r)
	p.Title, p.Data = title, err.Error()
	d.render(w, "failed", p, status)
}

// listQueues shows all queues.
func (d *Dashboard) listQueues(w http.ResponseWriter, r *http.Request) {
	type row struct {
		Queue, Base string
		Now         any
		Err         string
	}
	var rows []row
	for _, name := range d.shownTo(d.session(r)) {
		one := row{Queue: name, Base: d.base(name)}
		now, err := d.queues[name].now(r.Context())
		if one.Now = now; err != nil {
			one.Err = err.Error()
		}
		rows = append(rows, one)
	}
	p := d.page(w, r)
	p.Data = rows
	d.render(w, "queues", p, http.StatusOK)
}

// functions are what templates call.
func (d *Dashboard) functions() template.FuncMap {
	return template.FuncMap{
		"clean": human.Clean, "span": human.Span, "from": human.From, "percent": human.Percent, "nextStart": human.NextStart,
		"keys":       func(n int) string { return map[bool]string{true: "key", false: "keys"}[n == 1] },
		"lanes":      func(n int) string { return human.Count(n, "lane", "lanes") },
		"hundredths": func(part float64) int { return int(100*part + .5) },
		"number": func(n any) string {
			switch n := n.(type) {
			case int:
				return human.Thousands(n)
			case int64:
				return human.Thousands(n)
			}
			return fmt.Sprint(n)
		},
		"rate":  rate,
		"stamp": func(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") },
		"clock": func(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05") },
		"asset": func(name string) string { return d.cfg.Prefix + "-/asset/" + d.assets[name].name },
		"root":  func() string { return d.cfg.Prefix },
		"base":  d.base,
		"link":  link,
		"args":  func(values ...any) []any { return values },
		"used":  used,
		"late":  func(d time.Duration) bool { return d > lateAfter },
		"sub":   func(a, b float64) float64 { return a - b },
		"priority": func(p queue.Priority) string {
			return map[queue.Priority]string{queue.High: "high", queue.Normal: "normal", queue.Low: "low"}[p]
		},
		"sign":   sign,
		"reason": func(reason string) string { return reasons[queue.Reason(reason)] },
	}
}

// link returns a path with a query of names and values. Whatever stands in names, it comes
// back as it was.
func link(path string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// sign names what a line of a difference does.
func sign(line string) string {
	switch {
	case strings.HasPrefix(line, "+"):
		return "plus"
	case strings.HasPrefix(line, "-"):
		return "minus"
	}
	return ""
}

// lateAfter is a lateness that somebody should look at.
const lateAfter = 50 * time.Millisecond

// used returns how much of a rule is used, in hundredths.
func used(r queue.RuleState) int {
	if r.Limit < 1 {
		return 0
	}
	return 100 * (r.Limit - min(r.Limit, max(0, r.Remaining))) / r.Limit
}

// rate writes so many a second.
func rate(perSecond float64) string {
	switch {
	case perSecond < 0:
		return "—"
	case perSecond == 0:
		return "0/s"
	case perSecond < 0.1:
		return strconv.FormatFloat(perSecond*60, 'g', 2, 64) + "/min"
	case perSecond < 10:
		return strconv.FormatFloat(perSecond, 'g', 2, 64) + "/s"
	}
	return human.Thousands(int64(perSecond+.5)) + "/s"
}

// number reads a number of a query that is not negative.
func number(q url.Values, name string) int {
	n, err := strconv.Atoi(q.Get(name))
	if err != nil || n < 0 {
		return 0
	}
	return min(n, 10_000_000)
}
