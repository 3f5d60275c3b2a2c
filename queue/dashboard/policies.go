package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/policydiff"
	"github.com/waterclock/waterclock/queue"
)

// A policiesView is the page of the policies.
type policiesView struct {
	Version int64
	Since   time.Time
	queue.Note
	Source  string
	Long    bool // the source is too long for a page
	History []policydiff.Change
}

const (
	maxSource       = 1 << 20  // bytes that a form takes
	shownSource     = 64 << 10 // bytes that are shown of a longer one
	historyShown    = 10
	changesShown    = 200  // lines of a difference
	comparedTenants = 2000 // comparing takes the square of it
)

func readPolicies(ctx context.Context, w *watched, _ url.Values) (any, error) {
	now, err := w.policies(ctx)
	if err != nil {
		return nil, err
	}
	v := policiesView{Version: now.Version, Since: now.Since, Note: now.Note}
	if v.Source, err = policydiff.Source(now.Policies); err != nil {
		return nil, err
	}
	if v.Long = len(v.Source) > maxSource || len(now.Policies.Tenants) > comparedTenants; v.Long {
		v.Source = v.Source[:min(shownSource, len(v.Source))]
		return v, nil
	}
	versions, err := w.inspector.PolicyHistory(ctx, historyShown+1)
	if err != nil {
		return nil, err
	}
	if len(versions) > 0 && versions[0].Version == now.Version {
		v.Note = versions[0].Note
	}
	for _, version := range versions {
		if len(version.Policies.Tenants) > comparedTenants {
			v.Long = true
			return v, nil
		}
	}
	if v.History, err = policydiff.History(versions, historyShown); err != nil {
		return nil, err
	}
	for k := range v.History {
		v.History[k].Changes = few(v.History[k].Changes)
	}
	return v, nil
}

// changes returns the lines that differ: some of them, where there are many.
func changes(before, after queue.Policies) ([]string, error) {
	if len(before.Tenants)+len(after.Tenants) > comparedTenants {
		return nil, refusal{http.StatusRequestEntityTooLarge, "These policies are too long to be compared on a page; use waterclock policies diff and apply."}
	}
	lines, err := policydiff.Changes(before, after)
	return few(lines), err
}

// few leaves out empty lines, and what is too much.
func few(lines []string) []string {
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.TrimSpace(line) == "+" || strings.TrimSpace(line) == "-" })
	if len(lines) > changesShown {
		lines = append(lines[:changesShown:changesShown], fmt.Sprintf("… and %d lines more", len(lines)-changesShown))
	}
	return lines
}

// A previewView is what policies would change.
type previewView struct {
	Version int64
	Source  string
	Reason  string
	Changes []string
	Wrong   string // why the policies cannot be
	Waiting int64
	Effect  effect
}

// preview shows what other policies would do, and changes nothing.
func (d *Dashboard) preview(w http.ResponseWriter, r *http.Request) {
	_, of, err := d.operator(w, r)
	if err != nil {
		d.fail(w, r, err)
		return
	}
	v, err := of.preview(r.Context(), r.PostForm)
	if err != nil {
		d.fail(w, r, err)
		return
	}
	p := d.page(w, r)
	p.Tab, p.Data = "policies", v
	d.render(w, "preview", p, http.StatusOK)
}

func (w *watched) preview(ctx context.Context, form url.Values) (v previewView, err error) {
	now, err := w.inspector.Policies(ctx)
	if err != nil {
		return v, err
	}
	v = previewView{Version: now.Version, Source: plainLines(form.Get("source")), Reason: form.Get("reason")}
	after, err := readSource(v.Source)
	if err != nil {
		v.Wrong = err.Error()
		return v, nil
	}
	if v.Changes, err = changes(now.Policies, after); err != nil || len(v.Changes) == 0 {
		return v, err
	}
	stats, err := w.inspector.Stats(ctx)
	if err != nil {
		return v, err
	}
	v.Waiting = stats.Waiting
	v.Effect, err = w.effect(ctx, now.Policies, after)
	return v, err
}

// plainLines undoes what browsers do to the ends of lines.
func plainLines(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

func readSource(text string) (queue.Policies, error) {
	if len(text) > maxSource {
		return queue.Policies{}, errors.New("these policies are longer than a form may be; use waterclock policies apply")
	}
	p, err := queue.ParsePolicies("policies", []byte(text))
	if err == nil {
		err = p.Validate()
	}
	return p, err
}

// doApply puts policies in force, if nobody else has meanwhile.
func doApply(ctx context.Context, o order) (string, error) {
	version, err := strconv.ParseInt(o.fields.Get("version"), 10, 64)
	if err != nil || version < 0 {
		return "", refusal{http.StatusBadRequest, "Which version was changed? Preview the change first."}
	}
	p, err := readSource(plainLines(o.fields.Get("source")))
	if err != nil {
		return "", refusal{http.StatusBadRequest, err.Error()}
	}
	err = o.queue.ReplacePolicies(ctx, version, p)
	if errors.Is(err, queue.ErrPoliciesChanged) {
		return "", refusal{http.StatusConflict, "Somebody else has changed the policies since you looked. Preview your change against theirs."}
	}
	if errors.Is(err, queue.ErrDivided) {
		return "", refusal{http.StatusConflict, err.Error() + ". Want the number that it has, or none."}
	}
	return "The next start obeys the new policies.", err
}
