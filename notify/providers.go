package notify

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// A Provider is a sender among several, and says which targets are for it.
type Provider struct {
	// Name is what targets say as their provider. The senders of this package know
	// theirs: fcm, apns, webpush, webhook.
	Name string

	// App tells several of one name apart: a topic, a project. Targets that say no app
	// go to the first. Empty means that the sender takes targets of any app.
	App string

	Sender Sender
}

// Providers are several senders as one: each target goes to its own. A user's iPhone,
// Android phone and browser then share one queue and one set of limits.
type Providers struct{ list []Provider }

// NewProviders returns the senders as one.
func NewProviders(list ...Provider) (*Providers, error) {
	seen := make(map[[2]string]bool)
	all := &Providers{}
	for i, p := range list {
		if p.Sender == nil {
			return nil, fmt.Errorf("notify: provider %d has no sender", i+1)
		}
		if own := nameOf(p.Sender); own != "" && p.Name != "" && p.Name != own {
			return nil, fmt.Errorf("notify: provider %d is named %q; its sender is %s", i+1, p.Name, own)
		} else if own != "" {
			p.Name = own
		}
		if len(list) > 1 && p.Name == "" {
			return nil, fmt.Errorf("notify: provider %d has no name", i+1)
		}
		if seen[[2]string{p.Name, p.App}] {
			return nil, fmt.Errorf("notify: two providers are named %s, app %q; give each an app of its own", p.Name, p.App)
		}
		seen[[2]string{p.Name, p.App}] = true
		all.list = append(all.list, p)
	}
	if len(all.list) == 0 {
		return nil, errors.New("notify: no provider")
	}
	return all, nil
}

// nameOf returns the name of a sender of this package.
func nameOf(s Sender) string {
	switch s.(type) {
	case *FCM:
		return "fcm"
	case *APNs:
		return "apns"
	case *WebPush:
		return "webpush"
	case *Webhook:
		return "webhook"
	}
	return ""
}

// Send sends through the target's provider. A target without one is dropped unsent.
func (ps *Providers) Send(ctx context.Context, m Message, to Target) Outcome {
	p, err := ps.of(to)
	if err != nil {
		return Outcome{Action: Drop, Err: err}
	}
	return p.Sender.Send(ctx, m, to)
}

// of returns the provider of a target, or an error that says what is wrong with it.
func (ps *Providers) of(to Target) (Provider, error) {
	var found *Provider
	why := ""
	for i, p := range ps.list {
		if to.Provider != "" && p.Name != "" && to.Provider != p.Name || to.App != "" && p.App != "" && to.App != p.App {
			continue
		}
		if objection := p.objection(to); objection != "" {
			why = objection
			continue
		}
		if found != nil && to.Provider == "" && p.Name != found.Name {
			return Provider{}, fmt.Errorf("%w: the target says no provider, and may be for %s or %s", errLocal, found.Name, p.Name)
		}
		if found == nil {
			found = &ps.list[i]
		}
	}
	switch {
	case found != nil:
		return *found, nil
	case why != "" && (to.Provider != "" || len(ps.list) == 1):
		return Provider{}, fmt.Errorf("%w: the target is not one of %s: %s", errLocal, wordOr(to.Provider, ps.list[0].Name), why)
	}
	return Provider{}, fmt.Errorf("%w: no sender here for a target of provider %q, app %q; there are %s",
		errLocal, word(to.Provider), word(strings.ReplaceAll(to.App, ".", "_")), ps)
}

func wordOr(text, otherwise string) string {
	if text = word(text); text != "" {
		return text
	}
	return otherwise
}

// String lists the providers.
func (ps *Providers) String() string {
	var names []string
	for _, p := range ps.list {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

// String returns the provider's name and app.
func (p Provider) String() string {
	if p.App == "" {
		return p.Name
	}
	return p.Name + "/" + p.App
}

// objection says why a target cannot be one of the provider's; empty if it can.
func (p Provider) objection(to Target) string {
	subscription, address := to.P256dh != "", strings.Contains(to.Token, "://")
	switch {
	case p.Name != "fcm" && p.Name != "apns" && p.Name != "webpush" && p.Name != "webhook":
		return "" // a sender of the caller's own
	case p.Name == "webpush" && !subscription:
		return "want a push subscription, {endpoint, keys: {p256dh, auth}}"
	case p.Name != "webpush" && subscription:
		return "it is a browser's push subscription"
	case p.Name == "webhook" && to.Token != "" && !address:
		return "want a URL"
	case p.Name != "webhook" && to.Token == "":
		return "the message has no target"
	case (p.Name == "fcm" || p.Name == "apns") && address:
		return "it is a URL; want a device's token"
	}
	if _, err := hex.DecodeString(to.Token); p.Name == "apns" && err != nil {
		return "want a device's token in hexadecimal"
	}
	return ""
}

// hasOrigins tells whether each target of the provider names the host that it is sent to.
func (p Provider) hasOrigins() bool { return p.Name == "webpush" || p.Name == "webhook" }

// routeOf returns the route to a target, and the shares of the worker's places that bound it.
func (h *handler) routeOf(p Provider, tenant string, to Target) route {
	r := route{name: p.route(to)}
	if !h.cfg.Shared {
		r.name += " " + tenant
	}
	if len(h.providers.list) > 1 {
		r.shares = append(r.shares, share{p.String(), max(1, h.cfg.Concurrency/2)})
	}
	origin := p.Name + " " + endpointOrigin(to.Token)
	switch p.Name {
	case "webpush": // a push service has many users
		r.shares = append(r.shares, share{origin, max(1, h.cfg.Concurrency/2)})
	case "webhook":
		r.shares = append(r.shares, share{origin, max(1, h.cfg.Concurrency/4)}, share{r.name, max(1, h.cfg.Concurrency/8)})
	}
	return r
}
