package api

import (
	"net/http"

	"github.com/waterclock/waterclock/queue/access"
)

// operations are all that can be asked for. openapi.yaml describes each.
func operations() []operation {
	const q = "/v1/queues/{queue}"
	page := []string{"from", "n"}
	with := func(names ...string) []string { return append(names, page...) }
	return []operation{
		look("/v1/queues", page, queues),
		look(q, nil, state),
		look(q+"/health", nil, health),
		look(q+"/doctor", nil, findings),
		look(q+"/tenants", with("tenant"), tenants),
		look(q+"/users", with("tenant"), users),
		look(q+"/lane", with("tenant", "user"), lane),
		look(q+"/why", []string{"tenant", "user"}, why),
		look(q+"/job", []string{"id"}, job).needing(access.Offer, access.Read),
		look(q+"/running", page, running),
		look(q+"/later", page, later),
		look(q+"/retrying", page, retrying),
		look(q+"/failures", nil, failures),
		look(q+"/drops", with("tenant", "reason"), drops),
		look(q+"/dead", with("tenant"), dead),
		look(q+"/workers", nil, workers),
		look(q+"/pauses", nil, pauses),
		look(q+"/overrides", nil, overrides),
		look(q+"/policies", nil, getPolicies),
		look(q+"/policies/history", page, history),
		act(http.MethodPost, q+"/jobs", offer).needing(access.Offer),
		ask("/v1/decide", decide).needing(access.Decide).of(light),
		ask("/v1/limits/{limit}/acquire", acquire).needing(access.Decide).of(patient),
		act(http.MethodPost, q+"/pause", pause),
		act(http.MethodPost, q+"/resume", resume),
		act(http.MethodPost, q+"/cancel", cancel),
		act(http.MethodPost, q+"/purge", purge),
		act(http.MethodPost, q+"/revive", revive),
		act(http.MethodPost, q+"/delete", remove),
		act(http.MethodPut, q+"/policies", putPolicies),
		act(http.MethodPut, q+"/users", putUser),
		act(http.MethodPut, q+"/overrides", putOverride).about("limit", repeated),
		drop(q+"/overrides", []string{"limit", repeated, "author", "reason"}, deleteOverride),
		ask(q+"/policies/check", checkPolicies),
		ask(q+"/policies/diff", diffPolicies),
		ask(q+"/plan", plan),
	}
}
