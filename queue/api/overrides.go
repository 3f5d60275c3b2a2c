package api

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/internal/policyfile"
	"github.com/waterclock/waterclock/internal/strictjson"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

func overrides(c *call) (List[queue.Override], error) { return listOf(c.inspector.Overrides(c.ctx)) }

// A NewOverride is a request to replace rules, concurrency or capacity of the one whom the query names, for a time or
// until an instant.
type NewOverride struct {
	Rules       []string  `json:"rules,omitempty"`
	Concurrency string    `json:"concurrency,omitempty"`
	Capacity    int64     `json:"capacity,omitempty"`
	For         span      `json:"for,omitempty"`
	Until       time.Time `json:"until,omitzero"`
	Author      string    `json:"author,omitempty"`
	Reason      string    `json:"reason,omitempty"`
}

func putOverride(c *call, in NewOverride) (all List[queue.Override], err error) {
	o, err := in.override()
	if err != nil {
		return all, err
	}
	if o.Limit, o.Key, err = c.overridden(); err != nil {
		return all, err
	}
	if o.Limit == limits.Queue && o.Capacity > 0 {
		return all, wrongField("/capacity", "the queue has none", "want that of a tenant, a user or a limit by name")
	}
	if err := c.note(in.Author, in.Reason).Override(c.ctx, o); err != nil {
		return all, err
	}
	return overrides(c)
}

// override returns what the body says of an override.
func (in NewOverride) override() (o queue.Override, err error) {
	for i, text := range in.Rules {
		rule, err := throttle.ParseRule(text)
		if err != nil {
			what, want, _ := strings.Cut(strings.TrimPrefix(err.Error(), "throttle: "), ": want ")
			return o, wrongField(fmt.Sprintf("/rules/%d", i), what, "want "+cmp.Or(want, "a rule such as leak 5/s"))
		}
		o.Rules = append(o.Rules, rule)
	}
	if in.Concurrency != "" {
		concurrency, err := policyfile.ParseConcurrency(in.Concurrency)
		if err != nil {
			what, want := strictjson.Parts(err)
			return o, wrongField("/concurrency", "is "+what, want)
		}
		o.Concurrency = queue.Concurrency(concurrency)
	}
	if o.Capacity = int(in.Capacity); len(in.Rules) == 0 && in.Concurrency == "" && in.Capacity == 0 {
		return o, wrongField("", "replaces nothing", `want rules such as ["leak 5/s"], concurrency or capacity`)
	}
	o.For, o.Until, err = lasting(in.For, in.Until)
	return o, err
}

func deleteOverride(c *call) (all List[queue.Override], err error) {
	limit := c.required("limit")
	if c.bad != nil {
		return all, c.bad
	}
	was, err := c.note(c.text("author"), c.text("reason")).EndOverride(c.ctx, limit, c.query[repeated]...)
	if err == nil && !was {
		_, _, err = c.overridden() // it may be the name that is wrong
	}
	if err != nil {
		return all, err
	}
	return overrides(c)
}

// overridden returns whom the query names: a limit that there is, with a value for each field of its key.
func (c *call) overridden() (limit string, key []string, err error) {
	now, err := c.inspector.Policies(c.ctx)
	if err != nil {
		return "", nil, err
	}
	fields := map[string][]string{limits.Queue: nil, limits.Tenant: {"tenant"}, limits.User: {"tenant", "user"}}
	for name, l := range now.Policies.Limits {
		fields[name] = l.Key
	}
	limit, key = c.required("limit"), c.query[repeated]
	switch want, there := fields[limit]; {
	case !there:
		c.refuse("limit", fmt.Sprintf("there is no limit %.40q", limit), human.Suggest(limit, slices.Sorted(maps.Keys(fields))))
	case len(want) == 0 && len(key) > 0:
		c.refuse(repeated, fmt.Sprintf("has %s", human.Count(len(key), "value", "values")), "want none: limit "+limit+" has no key")
	case len(want) != len(key):
		c.refuse(repeated, fmt.Sprintf("has %s", human.Count(len(key), "value", "values")), "want one for each of "+strings.Join(want, ", ")+", as key=…&key=…")
	case slices.Contains(key, ""):
		c.refuse(repeated, "is empty", "want a name")
	}
	return limit, key, c.bad
}
