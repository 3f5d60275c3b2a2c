package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/queue"
)

// A policiesView is the page of the policies.
type policiesView struct {
	Version int64
	Since   time.Time
	queue.Note
	Source  string
	Long    bool // the source is too long for a page
	History []policyChange
}

// A policyChange is what somebody has changed.
type policyChange struct {
	Version int64
	Since   time.Time
	queue.Note
	Changes []string
}

const (
	maxSource     = 1 << 20 // bytes that a page shows, or takes
	historyShown  = 10
	changesShown  = 200 // lines of a difference
	longestSource = 64 << 10
)

func source(p queue.Policies) (string, error) {
	text, err := yaml.Marshal(p)
	return string(text), err
}

func readPolicies(ctx context.Context, w *watch, _ url.Values) (any, error) {
	now, err := w.policies(ctx)
	if err != nil {
		return nil, err
	}
	v := policiesView{Version: now.Version, Since: now.Since, Note: now.Note}
	if v.Source, err = source(now.Policies); err != nil {
		return nil, err
	}
	if v.Long = len(v.Source) > maxSource; v.Long {
		v.Source = v.Source[:longestSource]
	}
	versions, err := w.inspector.PolicyHistory(ctx, historyShown+1)
	if err != nil {
		return nil, err
	}
	if len(versions) > 0 && versions[0].Version == now.Version {
		v.Note = versions[0].Note
	}
	for k, this := range versions[:min(historyShown, len(versions))] {
		change := policyChange{Version: this.Version, Since: this.Since, Note: this.Note}
		var before queue.Policies
		if k+1 < len(versions) {
			before = versions[k+1].Policies
		}
		if change.Changes, err = changes(before, this.Policies); err != nil {
			return nil, err
		}
		v.History = append(v.History, change)
	}
	return v, nil
}

// changes returns the lines that differ.
func changes(before, after queue.Policies) ([]string, error) {
	a, err := source(before)
	if err != nil {
		return nil, err
	}
	b, err := source(after)
	if err != nil || a == b {
		return nil, err
	}
	lines := human.Diff(strings.Split(strings.TrimSuffix(a, "\n"), "\n"), strings.Split(strings.TrimSuffix(b, "\n"), "\n"))
	if len(lines) > changesShown {
		lines = append(lines[:changesShown:changesShown], fmt.Sprintf("… and %d lines more", len(lines)-changesShown))
	}
	return lines, nil
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
	_, err := d.operator(w, r)
	of := d.queues[r.PathValue("queue")]
	if err == nil && of == nil {
		err = notFound("This dashboard does not show such a queue.")
	}
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

func (w *watch) preview(ctx context.Context, form url.Values) (v previewView, err error) {
	now, err := w.inspector.PoliciesInForce(ctx)
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
	return "The next start obeys the new policies.", err
}
