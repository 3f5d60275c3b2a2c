package dashboard

import (
	"context"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/queue/access"
	"github.com/waterclock/waterclock/throttle"
)

// loginTries is how often an address may try a token in a minute.
const loginTries = 10

// maxForm is how many bytes a form has at most: policies of many tenants are the longest.
const maxForm = 4 << 20

func (d *Dashboard) loginPage(w http.ResponseWriter, r *http.Request) {
	d.loginForm(w, r, http.StatusOK, loginView{Next: d.localPath(r.URL.Query().Get("next"))})
}

// A loginView is the form for the token, and why it is shown again.
type loginView struct {
	Next, Name, Wrong string
	Closed            bool // who has not signed in may not even look
}

func (d *Dashboard) loginForm(w http.ResponseWriter, r *http.Request, status int, v loginView) {
	p := d.page(w, r)
	v.Closed = d.cfg.SignIn
	p.Data = v
	d.render(w, "login", p, status)
}

// localPath returns a path of the dashboard; another one becomes its start.
func (d *Dashboard) localPath(path string) string {
	if !strings.HasPrefix(path, d.cfg.Prefix) || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n") {
		return d.cfg.Prefix
	}
	return path
}

// login begins the session of somebody who knows a token.
func (d *Dashboard) login(w http.ResponseWriter, r *http.Request) {
	if err := d.readForm(w, r); err != nil {
		d.fail(w, r, err)
		return
	}
	name := strings.TrimSpace(r.PostForm.Get("name"))
	again := func(status int, wrong string) {
		d.loginForm(w, r, status, loginView{Next: d.localPath(r.PostForm.Get("next")), Name: name, Wrong: wrong})
	}
	if !d.mayTry(r) {
		w.Header().Set("Retry-After", "60")
		again(http.StatusTooManyRequests, "Too many tokens were tried. Wait a minute.")
		return
	}
	token, err := d.keys.tokens.Find(r.PostForm.Get("token"))
	switch {
	case errors.Is(err, access.ErrExpired):
		again(http.StatusForbidden, "This token has expired. Ask for another one.")
		return
	case err != nil:
		d.log.Warn("a wrong token was entered at the dashboard", "remote", r.RemoteAddr)
		again(http.StatusForbidden, "This is not the token.")
		return
	case !slices.ContainsFunc(d.cfg.Queues, func(queue string) bool { return token.May(access.Read, queue) }):
		again(http.StatusForbidden, "This token is not for this dashboard: that needs the scope read or steer, for a queue that is shown here.")
		return
	case token.Author(name) == "" || len(name) > maxAuthor:
		again(http.StatusBadRequest, "Say who you are, in 80 letters: pauses and policies keep it.")
		return
	}
	d.log.Info("somebody has signed in to the dashboard", "author", token.Author(name), "remote", r.RemoteAddr)
	http.SetCookie(w, d.cookie(r, sessionCookie, d.keys.begin(token, name, time.Now()), sessionLength))
	http.Redirect(w, r, d.localPath(r.PostForm.Get("next")), http.StatusSeeOther)
}

// mayTry limits how often somebody tries tokens.
func (d *Dashboard) mayTry(r *http.Request) bool {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	decision, err := d.tries.Allow(context.WithoutCancel(r.Context()), 1,
		throttle.Subject{Key: "from " + host, Rules: []throttle.Rule{throttle.Window(loginTries, time.Minute)}})
	return err == nil && decision.Outcome == throttle.Admitted
}

func (d *Dashboard) logout(w http.ResponseWriter, r *http.Request) {
	if _, err := d.sender(w, r); err != nil {
		d.fail(w, r, err)
		return
	}
	http.SetCookie(w, d.cookie(r, sessionCookie, "", -time.Second))
	http.Redirect(w, r, d.cfg.Prefix, http.StatusSeeOther)
}

// looking lets those look who may: with [Config.SignIn], whose session has a token for the queue.
func (d *Dashboard) looking(next http.HandlerFunc) http.HandlerFunc {
	if !d.cfg.SignIn {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		s, queue := d.session(r), r.PathValue("queue")
		switch {
		case s == nil:
			http.Redirect(w, r, link(d.cfg.Prefix+"-/login", "next", r.URL.RequestURI()), http.StatusSeeOther)
		case queue != "" && !s.token.May(access.Read, queue):
			d.fail(w, r, refusal{http.StatusForbidden, "The token " + s.token.Name + " does not show queue " + queue + ": that needs the scope read or steer for it."})
		default:
			next(w, r)
		}
	}
}

// shownTo returns the queues that somebody may look at; s is nil for who has not signed in.
func (d *Dashboard) shownTo(s *session) (names []string) {
	for _, name := range d.cfg.Queues {
		if !d.cfg.SignIn || s != nil && s.token.May(access.Read, name) {
			names = append(names, name)
		}
	}
	return names
}

// readForm reads the form of a request that no other site has sent.
func (d *Dashboard) readForm(w http.ResponseWriter, r *http.Request) error {
	if d.keys == nil {
		return refusal{http.StatusForbidden, "This dashboard was started without a token: it shows, and changes nothing."}
	}
	if d.origin.Check(r) != nil {
		return refusal{http.StatusForbidden, "This form comes from another site."}
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return refusal{http.StatusBadRequest, "This form cannot be read: " + err.Error()}
	}
	return nil
}

// operator returns who sends a form, with the form read, if that is somebody who may steer the queue of the path.
func (d *Dashboard) operator(w http.ResponseWriter, r *http.Request) (*session, *watched, error) {
	s, err := d.sender(w, r)
	if err != nil {
		return nil, nil, err
	}
	of := d.queues[r.PathValue("queue")]
	if of == nil {
		return nil, nil, notFound("This dashboard does not show such a queue.")
	}
	if !s.token.May(access.Steer, of.name) {
		return nil, nil, refusal{http.StatusForbidden, "The token " + s.token.Name + " may only look: to act here it needs the scope steer for queue " + of.name + "."}
	}
	return s, of, nil
}

// sender returns who sends a form, with the form read.
func (d *Dashboard) sender(w http.ResponseWriter, r *http.Request) (*session, error) {
	if err := d.readForm(w, r); err != nil {
		return nil, err
	}
	s := d.session(r)
	if s == nil {
		return nil, refusal{http.StatusForbidden, "Sign in first: the session has ended, or never began."}
	}
	if subtle.ConstantTimeCompare([]byte(r.PostForm.Get("form")), []byte(s.form)) != 1 {
		return nil, refusal{http.StatusForbidden, "This form was not made for your session. Load the page again."}
	}
	return s, nil
}
