package notifytest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// The ways to an access token of FCM other than a service account's key.

const (
	fcmScope      = "https://www.googleapis.com/auth/firebase.messaging"
	cloudScope    = "https://www.googleapis.com/auth/cloud-platform"
	poolProvider  = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k8s"
	refreshToken  = "1//refresh"
	serviceTokens = "/v1/projects/-/serviceAccounts/push@school-push.example:generateAccessToken"
)

// Subject is the token of the other identity provider that this Google knows.
const Subject = "subject-token-of-the-cluster"

// WorkloadIdentity returns a file of workload identity federation that reads [Subject]
// from source, {"file": …} or {"url": …}; with a service account's identity if as says so.
func (f *FCM) WorkloadIdentity(source map[string]any, as bool) []byte {
	file := map[string]any{
		"type": "external_account", "audience": poolProvider, "token_url": f.URL + "/sts",
		"subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "credential_source": source,
	}
	if as {
		file["service_account_impersonation_url"] = f.URL + serviceTokens
	}
	text, _ := json.Marshal(file) // strings can always be written
	return text
}

// UserCredentials returns a file as gcloud writes it for a developer.
func (f *FCM) UserCredentials() []byte {
	return fmt.Appendf(nil, `{"type":"authorized_user","client_id":"gcloud","client_secret":"s","refresh_token":%q,"token_uri":%q}`,
		refreshToken, f.URL+"/user")
}

// Metadata is the metadata server of one of Google's machines, over plain HTTP: where
// Google's libraries look, the environment variable GCE_METADATA_HOST holds its address.
func (f *FCM) Metadata() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Metadata-Flavor") != "Google":
			http.Error(w, "Metadata-Flavor is missing", http.StatusForbidden)
		case r.URL.Path != "/computeMetadata/v1/instance/service-accounts/default/token" || r.URL.Query().Get("scopes") != fcmScope:
			http.NotFound(w, r)
		default:
			_, _ = io.WriteString(w, `{"access_token":"`+f.mint()+`","expires_in":3599,"token_type":"Bearer"}`)
		}
	})
}

// Token is a source of access tokens of the caller's own.
func (f *FCM) Token() string { return f.mint() }

// tokenEndpoint returns what verifies a request for an access token, nil for other paths.
func (f *FCM) tokenEndpoint(path string) func(r *http.Request, body []byte) (objection string) {
	switch path {
	case "/token":
		return f.checkAssertion
	case "/user":
		return form(map[string]string{"grant_type": "refresh_token", "refresh_token": refreshToken, "client_id": "gcloud", "client_secret": "s"})
	case "/sts":
		return f.checkExchange
	case serviceTokens:
		return f.checkImpersonation
	}
	return nil
}

func (f *FCM) checkExchange(r *http.Request, body []byte) string {
	values, _ := url.ParseQuery(string(body))
	if !slices.Contains([]string{fcmScope, cloudScope}, values.Get("scope")) {
		return "scope"
	}
	return form(map[string]string{
		"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "audience": poolProvider,
		"requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
		"subject_token":        Subject, "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
	})(r, body)
}

func (f *FCM) checkImpersonation(r *http.Request, body []byte) string {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	f.mu.Lock()
	_, known := f.tokens[token]
	f.mu.Unlock()
	var ask struct {
		Scope    []string
		Lifetime string
	}
	if json.Unmarshal(body, &ask) != nil || !known || !slices.Contains(ask.Scope, fcmScope) || ask.Lifetime != "3600s" {
		return "token, scope or lifetime"
	}
	return ""
}

// form wants a form with these values.
func form(want map[string]string) func(r *http.Request, body []byte) string {
	return func(r *http.Request, body []byte) string {
		values, err := url.ParseQuery(string(body))
		if err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" {
			return "not a form"
		}
		for name, value := range want {
			if values.Get(name) != value {
				return name
			}
		}
		return ""
	}
}
