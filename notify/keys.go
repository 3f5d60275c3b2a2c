package notify

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/policyfile"
	"github.com/waterclock/waterclock/queue"
)

// The keys of a message's job say where it goes, so that limits by name can count it there, and
// can be paused there while other messages go on.
const (
	byProvider = "provider" // fcm, apns, webpush, webhook, or as the target says
	byRoute    = "route"    // the account there: the provider and the app; the push service, or the webhook's endpoint
	byEndpoint = "endpoint" // of a webhook
	byDevice   = "device"   // any other target
)

// maxKey is how long the value of a job's key may be, in bytes.
const maxKey = 256

// keysOf returns the keys of a message's job: those on which all of its targets agree.
func keysOf(targets []Target) map[string]string {
	var all map[string]string
	for i, to := range targets {
		keys := to.keys()
		if i == 0 {
			all = keys
		}
		for name, value := range all {
			if keys[name] != value || len(value) > maxKey {
				delete(all, name)
			}
		}
	}
	return all
}

// costsOf returns what a message costs: a unit for each provider, of which it costs one for each device.
func costsOf(targets []Target) map[string]int {
	costs, seen := make(map[string]int), make(map[Target]bool)
	for _, to := range targets {
		if unit := to.provider(); policyfile.IsUnit(unit) && !seen[to.device()] {
			costs[unit]++
		}
		seen[to.device()] = true
	}
	return costs
}

// keys are those of a message to the target alone. Addresses stand there as fingerprints.
func (t Target) keys() map[string]string {
	keys := make(map[string]string)
	if t.Token != "" {
		keys[byDevice] = fingerprint(t)
	}
	provider := t.provider()
	if provider == "" {
		return keys
	}
	keys[byProvider], keys[byRoute] = provider, Provider{Name: provider}.route(t)
	if provider == "webhook" && t.Token != "" {
		keys[byEndpoint] = keys[byDevice]
		delete(keys, byDevice)
	}
	return keys
}

// provider returns who the target is for, as far as it says that itself; a token alone does not.
func (t Target) provider() string {
	switch {
	case t.Provider != "":
		return t.Provider
	case t.P256dh != "":
		return "webpush"
	case strings.Contains(t.Token, "://"):
		return "webhook"
	}
	return ""
}

// route names the way to a target: the account at the provider, of one app. An origin, and for webhooks an
// endpoint, is a way of its own: a failure there does not affect others.
func (p Provider) route(to Target) string {
	switch app := cmp.Or(to.App, p.App); {
	case p.Name == "webpush":
		return p.Name + "/" + fingerprint(Target{Token: endpointOrigin(to.Token)})
	case p.Name == "webhook":
		return p.Name + "/" + fingerprint(to)
	case app != "":
		return p.Name + "/" + app
	}
	return p.Name
}

// endpointOrigin returns the origin of an endpoint, empty if it has none.
func endpointOrigin(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return originOf(u)
}

// limitBy returns the limit by name that counts a job for the value of a key: of several the one that reaches farthest.
// A webhook's endpoint is its route, too. If tenants have accounts of their own, the limit has to count for the tenant.
func (h *handler) limitBy(key string, job queue.Info) (found queue.JobLimit, ok bool) {
	keys := []string{key}
	if key != "" && job.Keys[byEndpoint] != "" {
		keys = []string{byRoute, byEndpoint}
	}
	for _, l := range job.Limits() {
		about := slices.ContainsFunc(keys, func(key string) bool { return slices.Contains(l.Fields, policyfile.KeyField+key) })
		if !h.cfg.Shared && !slices.Contains(l.Fields, "tenant") {
			continue
		}
		if about && (!ok || len(l.Fields) < len(found.Fields)) {
			found, ok = l, true
		}
	}
	return found, ok
}
