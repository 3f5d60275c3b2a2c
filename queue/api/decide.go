package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/jobline"
	"github.com/waterclock/waterclock/internal/strictjson"
	"github.com/waterclock/waterclock/throttle"
	"github.com/waterclock/waterclock/throttle/limits"
	"github.com/waterclock/waterclock/throttle/throttlehttp"
)

// A Mode says what a decision does besides answering.
type Mode string

const (
	ModeAllow   Mode = "allow"   // counts the action if it may happen now
	ModeReserve Mode = "reserve" // counts it at the earliest instant that all limits allow, however far ahead
	ModePeek    Mode = "peek"    // counts nothing
)

// Fields are what limits know of an action. All of them may be left out.
type Fields struct {
	Tenant string            `json:"tenant,omitempty"`
	User   string            `json:"user,omitempty"`
	Type   string            `json:"type,omitempty"`
	Keys   map[string]string `json:"keys,omitempty"`
	Cost   int               `json:"cost,omitempty"`
	Costs  map[string]int    `json:"costs,omitempty"`
}

// fields are these as package limits has them.
func (f Fields) fields() limits.Fields {
	return limits.Fields{Tenant: f.Tenant, User: f.User, Type: f.Type, Keys: f.Keys, Cost: f.Cost, Costs: f.Costs}
}

// An Action is what a request asks about.
type Action struct {
	Fields
	Mode Mode `json:"mode,omitempty"`
}

// A Decision says whether an action may happen, and when.
type Decision struct {
	// Allowed says that it may happen: now, or at When if it was reserved.
	Allowed bool   `json:"allowed"`
	Outcome string `json:"outcome"` // of [throttle.Outcome]

	When   time.Time `json:"when"`    // the earliest instant, on Redis's clock; of what was dropped, when it is worth to ask again
	WaitMS int64     `json:"wait_ms"` // until then, rounded up

	// The rule that binds: the one that decided the instant, or the one nearest to its limit. Missing where no rule applied.
	Limit       string   `json:"limit,omitempty"` // its limit: queue, tenant, user, or a name
	Key         []string `json:"key,omitempty"`   // for whom it counts
	Rule        string   `json:"rule,omitempty"`
	Quota       int      `json:"quota,omitempty"` // the most that it allows at once
	Remaining   int      `json:"remaining"`       // how many more of cost 1 it would allow now
	MoreAfterMS int64    `json:"more_after_ms"`   // until there are more than Remaining

	Shadow string `json:"shadow,omitempty"` // the first shadow rule that would have objected
}

// Decisions are those about the actions of a request, in their order.
type Decisions struct {
	Decisions []Decision `json:"decisions"`
}

// An actionsBody is the actions of a request: one object, or a list of them.
type actionsBody struct{ actions []Action }

// maxActions is how many actions one request can ask about.
const maxActions = 1000

func decide(c *call, in actionsBody) (Decisions, error) {
	set, err := c.limits()
	if err != nil {
		return Decisions{}, err
	}
	found, err := decisions(c, set, in.actions)
	if err != nil {
		return Decisions{}, actionProblem(err, len(in.actions))
	}
	answer := Decisions{make([]Decision, len(found))}
	for i, d := range found {
		answer.Decisions[i] = decisionOf(in.actions[i].Mode, d)
	}
	if len(found) == 1 {
		all, err := set.Of(in.actions[0].fields())
		if err != nil {
			return Decisions{}, err
		}
		throttlehttp.SetFields(c.w.Header(), all, found[0])
	}
	return answer, nil
}

// limits returns the limits that are served.
func (c *call) limits() (*limits.Set, error) {
	if c.h.cfg.Limits == nil {
		return nil, problemf(http.StatusNotFound, "no-limits", "no limits are served here; start serve with --limits-file FILE")
	}
	return c.h.cfg.Limits(), nil
}

// decisions asks about all actions: together if all of them are for mode allow, otherwise one after the other.
func decisions(c *call, set *limits.Set, actions []Action) (all []limits.Decision, err error) {
	together := true
	fields := make([]limits.Fields, len(actions))
	for i, a := range actions {
		fields[i] = a.fields()
		together = together && a.Mode == ModeAllow
		if _, err := set.Of(fields[i]); err != nil {
			return nil, &limits.ActionError{Action: i, Err: err}
		}
	}
	if together {
		return set.AllowMany(c.ctx, fields...)
	}
	for i, a := range actions {
		ask := set.Allow
		switch a.Mode {
		case ModeReserve:
			ask = set.Reserve
		case ModePeek:
			ask = set.Peek
		}
		d, err := ask(c.ctx, fields[i])
		if err != nil {
			return nil, &limits.ActionError{Action: i, Err: err}
		}
		all = append(all, d)
	}
	return all, nil
}

// actionProblem is the problem of an action that is invalid under the limits.
func actionProblem(err error, of int) error {
	if !errors.Is(err, limits.ErrInvalidFields) && !errors.Is(err, throttle.ErrImpossibleCost) {
		return err
	}
	pointer, why := "", err
	if bad := new(limits.ActionError); errors.As(err, &bad) {
		why = bad.Err
		if of > 1 {
			pointer = fmt.Sprintf("/%d", bad.Action)
		}
	}
	text := why.Error()
	for _, prefix := range []string{"limits: invalid fields: ", "throttle: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	p := problemf(http.StatusUnprocessableEntity, "invalid-action", "%s", strings.TrimPrefix(pointer+": ", ": ")+text)
	p.Errors = []FieldError{{Pointer: pointer, Detail: text}}
	return p
}

func decisionOf(mode Mode, d limits.Decision) Decision {
	if d.Outcome == throttle.Dropped { // its slot is where a rule has refused it, and not when that rule would not
		wait := max(d.RetryAfter, d.NextAfter)
		d.Slot, d.RetryAfter = d.Slot.Add(wait-d.RetryAfter), wait
	}
	return Decision{
		Allowed: d.Outcome == throttle.Admitted || d.Outcome == throttle.Deferred && mode == ModeReserve,
		Outcome: d.Outcome.String(), When: d.Slot.UTC(), WaitMS: milliseconds(d.RetryAfter),
		Limit: d.Limit, Key: d.Key, Rule: d.Rule, Quota: d.Decision.Limit, Remaining: max(0, d.Remaining), MoreAfterMS: milliseconds(d.NextAfter),
		Shadow: d.Shadow,
	}
}

// milliseconds rounds up: who waits so long comes late enough.
func milliseconds(d time.Duration) int64 {
	return int64(math.Ceil(float64(d) / float64(time.Millisecond)))
}

// readActions reads the actions of a request. If one is invalid, nothing is decided.
func (c *call) readActions(into *actionsBody) error {
	if _, err := c.kind(kindJSON); err != nil {
		return err
	}
	pieces := []piece{{text: c.body}}
	if strictjson.Kind(c.body) == "a list" {
		var err error
		if pieces, err = items(c.body); err != nil {
			return invalidBody(c.body, err)
		}
	}
	if n := len(pieces); n == 0 || n > maxActions {
		return wrongField("", fmt.Sprintf("has %d actions", n), fmt.Sprintf("want 1 to %d", maxActions))
	}
	var wrong []FieldError
	for _, piece := range pieces {
		var a Action
		if err := a.read(piece.text); err != nil && len(wrong) < mostErrors {
			wrong = append(wrong, fieldError(c.body, piece.pointer, piece.offset, err))
		}
		into.actions = append(into.actions, a)
	}
	if len(wrong) > 0 {
		p := problemf(http.StatusBadRequest, "invalid-body", "%s is wrong: %s; nothing was decided", name(wrong[0]), wrong[0].Detail)
		p.Errors = wrong
		return p
	}
	return nil
}

// read reads an action, strictly: a field that nobody reads would be a limit that does not hold.
func (a *Action) read(text []byte) error {
	a.Mode = ModeAllow
	return strictjson.Object(text, func(name string, value json.RawMessage) (err error) {
		switch name {
		case "tenant":
			a.Tenant, err = strictjson.Text(value)
		case "user":
			a.User, err = strictjson.Text(value)
		case "type":
			a.Type, err = strictjson.Text(value)
		case "keys":
			a.Keys, err = jobline.ReadKeys(value)
		case "cost":
			a.Cost, err = strictjson.Number(value, 1, 1_000_000)
		case "costs":
			a.Costs, err = jobline.ReadCosts(value)
		case "mode":
			var mode string
			mode, err = strictjson.Text(value)
			if a.Mode = Mode(mode); err != nil || a.Mode != ModeAllow && a.Mode != ModeReserve && a.Mode != ModePeek {
				err = fmt.Errorf(`%s; want "allow", "reserve" or "peek"`, strictjson.Shown(value))
			}
		default:
			names, _ := fieldNames(reflect.TypeFor[Action]())
			err = errors.New("unknown field; want " + strings.Join(names, ", "))
		}
		return err
	})
}
