package dashboard

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// An order is what an operator wants. Names of tenants, users and jobs come in the path's query,
// where they stay as they are; the rest is of the form.
type order struct {
	queue  *watch.Watcher // that notes who acts, and why
	names  url.Values
	fields url.Values
}

func (o order) tenant() string { return o.names.Get("t") }
func (o order) user() string   { return o.names.Get("u") }
func (o order) limit() string  { return o.names.Get("l") }
func (o order) key() string    { return o.names.Get("k") }

// scope says what an order is about: the queue, a tenant or a user, or a limit by name.
func (o order) scope() string {
	switch {
	case o.limit() != "":
		return strings.TrimSpace("limit " + human.Clean(o.limit()) + " " + human.Clean(o.key()))
	case o.user() != "":
		return "user " + human.Clean(o.user()) + " of tenant " + human.Clean(o.tenant())
	case o.tenant() != "":
		return "tenant " + human.Clean(o.tenant())
	}
	return "queue"
}

// pause returns a pause of what an order is about.
func (o order) pause() queue.Pause {
	switch {
	case o.limit() != "":
		return queue.Pause{Scope: queue.ScopeLimit, Limit: o.limit(), Key: o.key()}
	case o.user() != "":
		return queue.Pause{Scope: queue.ScopeUser, Tenant: o.tenant(), User: o.user()}
	case o.tenant() != "":
		return queue.Pause{Scope: queue.ScopeTenant, Tenant: o.tenant()}
	}
	return queue.Pause{Scope: queue.ScopeQueue}
}

// An action is something that an operator may do.
type action struct {
	// asks returns the question that is put before it is done, with the number of jobs that it
	// touches; nil, or an empty question, does it at once.
	asks func(ctx context.Context, o order) (string, error)
	// do does it, and returns what was done.
	do func(ctx context.Context, o order) (string, error)
}

// actions are those of a queue by their paths.
var actions = map[string]action{
	"pause":    {askPause, doPause},
	"resume":   {nil, doResume},
	"override": {askOverride, doOverride},
	"restore":  {nil, doRestore},
	"cancel":   {nil, doCancel},
	"purge":    {askPurge, doPurge},
	"revive":   {nil, doRevive},
	"delete":   {askDelete, doDelete},
	"apply":    {nil, doApply}, // the preview has asked
}

// act serves an action: who may do it is checked, then it is asked for, done and logged.
func (d *Dashboard) act(name string, a action) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, of, err := d.operator(w, r)
		if err != nil {
			d.fail(w, r, err)
			return
		}
		if q := r.URL.Query(); q.Get("u") != "" && q.Get("t") == "" {
			d.fail(w, r, refusal{http.StatusBadRequest, "A user of which tenant?"})
			return
		}
		note := queue.Note{Author: s.author(), Reason: r.PostForm.Get("reason")}
		o := order{of.inspector.As(note), r.URL.Query(), r.PostForm}
		if a.asks != nil && r.PostForm.Get("sure") != "yes" {
			question, err := a.asks(r.Context(), o)
			if err != nil {
				d.fail(w, r, err)
				return
			}
			if question != "" {
				d.confirm(w, r, question)
				return
			}
		}
		done, err := a.do(r.Context(), o)
		d.log.Info("an operator has acted", "action", name, "queue", of.name, "names", o.names.Encode(),
			"author", note.Author, "reason", note.Reason, "remote", r.RemoteAddr, "done", done, "err", err)
		of.cache.forget()
		if err != nil {
			d.fail(w, r, err)
			return
		}
		http.SetCookie(w, d.cookie(r, doneCookie, base64.RawURLEncoding.EncodeToString([]byte(done)), time.Minute))
		http.Redirect(w, r, d.localPath(r.PostForm.Get("back")), http.StatusSeeOther)
	})
}

// A question is what is asked before something is done.
type question struct {
	Text   string
	Action string // the path with its query, to be sent again
	Fields url.Values
	Back   string
}

// confirm asks, with all that was sent in the form.
func (d *Dashboard) confirm(w http.ResponseWriter, r *http.Request, text string) {
	fields := make(url.Values)
	for name, values := range r.PostForm {
		if name != "form" && name != "sure" {
			fields[name] = values
		}
	}
	p := d.page(w, r)
	p.Data = question{text, r.URL.RequestURI(), fields, d.localPath(r.PostForm.Get("back"))}
	d.render(w, "confirm", p, http.StatusOK)
}

const (
	minPause = time.Second
	maxPause = 30 * 24 * time.Hour
)

func askPause(ctx context.Context, o order) (string, error) {
	switch {
	case o.limit() != "" && o.key() == "":
		return "Pause the limit " + human.Clean(o.limit()) + "? No job that it counts starts meanwhile.", nil
	case o.limit() != "" || o.tenant() != "":
		return "", nil
	}
	stats, err := o.queue.Stats(ctx)
	return "Pause the whole queue, in which " + human.Jobs(stats.Waiting) + " wait?", err
}

func doPause(ctx context.Context, o order) (string, error) {
	length, err := time.ParseDuration(o.fields.Get("for"))
	if err != nil || length < minPause || length > maxPause {
		return "", refusal{http.StatusBadRequest, "For how long? Want a time from 1s to 720h, such as 10m."}
	}
	p := o.pause()
	if p.Scope == queue.ScopeLimit {
		if _, err := o.queue.LimitKey(ctx, p.Limit, p.Key); err != nil {
			return "", err
		}
	}
	p.For = length
	return fmt.Sprintf("The %s is paused for %s.", o.scope(), human.Span(length)), o.queue.Pause(ctx, p)
}

func doResume(ctx context.Context, o order) (string, error) {
	return fmt.Sprintf("The %s is not paused any more.", o.scope()), o.queue.Resume(ctx, o.pause())
}

func doCancel(ctx context.Context, o order) (string, error) {
	id := o.names.Get("id")
	cancelled, err := o.queue.Cancel(ctx, id)
	if err == nil && !cancelled {
		err = refusal{http.StatusConflict, "This job does not wait any more, or has no ID of its own."}
	}
	return "Job " + human.Clean(id) + " is cancelled: it is dropped when its turn comes.", err
}

func askPurge(ctx context.Context, o order) (string, error) {
	stats, err := o.queue.Tenant(ctx, o.tenant())
	return fmt.Sprintf("Drop %s that wait of tenant %s? They cannot be brought back.", human.Jobs(stats.Waiting), human.Clean(o.tenant())), err
}

func doPurge(ctx context.Context, o order) (string, error) {
	if o.tenant() == "" {
		return "", refusal{http.StatusBadRequest, "Of which tenant?"}
	}
	n, err := o.queue.Purge(ctx, o.tenant())
	return human.Jobs(n) + " of tenant " + human.Clean(o.tenant()) + " were dropped.", err
}

// entries returns the dead jobs that were chosen.
func (o order) entries() ([]string, error) {
	chosen := o.fields["entry"]
	if len(chosen) == 0 {
		return nil, refusal{http.StatusBadRequest, "No job was chosen."}
	}
	return chosen, nil
}

func doRevive(ctx context.Context, o order) (string, error) {
	chosen, err := o.entries()
	if err != nil {
		return "", err
	}
	n, err := o.queue.Revive(ctx, chosen...)
	return fmt.Sprintf("%d of %s wait again, with all their attempts.", n, human.Jobs(len(chosen))), err
}

func askDelete(_ context.Context, o order) (string, error) {
	chosen, err := o.entries()
	return fmt.Sprintf("Delete %s for ever?", human.Jobs(len(chosen))), err
}

func doDelete(ctx context.Context, o order) (string, error) {
	chosen, err := o.entries()
	if err != nil {
		return "", err
	}
	n, err := o.queue.DeleteDead(ctx, chosen...)
	return fmt.Sprintf("%d of %s were deleted.", n, human.Jobs(len(chosen))), err
}
