package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// A federation is a file of workload identity federation: where the token of the other
// identity provider lies, and where Google exchanges it for one of its own. Sources that
// are files and URLs are known, as in Kubernetes, GitHub and Azure; executables and AWS
// signatures are not.
type federation struct {
	Audience         string           `json:"audience"`
	SubjectTokenType string           `json:"subject_token_type"`
	TokenURL         string           `json:"token_url"`
	Impersonation    string           `json:"service_account_impersonation_url"`
	Source           federationSource `json:"credential_source"`
}

type federationSource struct {
	File    string            `json:"file"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Format  struct {
		Type  string `json:"type"` // "text", the default, or "json"
		Field string `json:"subject_token_field_name"`
	} `json:"format"`
}

func (f federation) check() error {
	switch {
	case f.Audience == "" || f.SubjectTokenType == "" || f.TokenURL == "":
		return errors.New("audience, subject_token_type or token_url is missing")
	case (f.Source.File == "") == (f.Source.URL == ""):
		return errors.New("credential_source: want a file or a url; other kinds need FCMConfig.Token")
	case f.Source.Format.Type == "json" && f.Source.Format.Field == "":
		return errors.New("credential_source.format: subject_token_field_name is missing")
	}
	return nil
}

// exchange exchanges the other provider's token for an access token, and that, if the
// file says so, for one of a service account.
func (f federation) exchange(ctx context.Context, p *pool) (string, time.Duration, error) {
	subject, err := f.Source.read(ctx, p)
	if err != nil {
		return "", 0, err
	}
	scope := fcmScope
	if f.Impersonation != "" {
		scope = "https://www.googleapis.com/auth/cloud-platform"
	}
	token, life, err := askForToken(ctx, p, f.TokenURL, url.Values{
		"grant_type":           {"urn:ietf:params:oauth:grant-type:token-exchange"},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
		"audience":             {f.Audience},
		"scope":                {scope},
		"subject_token":        {subject},
		"subject_token_type":   {f.SubjectTokenType},
	})
	if err != nil || f.Impersonation == "" {
		return token, life, err
	}
	return f.impersonate(ctx, p, token)
}

func (f federation) impersonate(ctx context.Context, p *pool, token string) (string, time.Duration, error) {
	header := http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}}
	r, failed := p.post(ctx, f.Impersonation, header, []byte(`{"scope":["`+fcmScope+`"],"lifetime":"3600s"}`))
	if failed != nil {
		return "", 0, fmt.Errorf("asking for a service account's token: %w", failed.Err)
	}
	var answer struct {
		AccessToken string    `json:"accessToken"`
		ExpireTime  time.Time `json:"expireTime"`
	}
	life := time.Duration(0)
	if err := json.Unmarshal(r.body, &answer); err == nil {
		life = answer.ExpireTime.Sub(clockNow(ctx))
	}
	if r.status != http.StatusOK || answer.AccessToken == "" || life <= 0 {
		return "", 0, &ProviderError{Provider: "google-iam", Status: r.status}
	}
	return answer.AccessToken, usableFor(min(life, time.Hour)), nil
}

// read returns the other provider's token, which is renewed where it lies.
func (s federationSource) read(ctx context.Context, p *pool) (string, error) {
	text, err := s.fetch(ctx, p)
	if err != nil {
		return "", err
	}
	if s.Format.Type == "json" {
		var fields map[string]any
		_ = json.Unmarshal(text, &fields)
		field, _ := fields[s.Format.Field].(string)
		text = []byte(field)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", errors.New("notify: fcm: credential_source: no token there")
	}
	return token, nil
}

func (s federationSource) fetch(ctx context.Context, p *pool) ([]byte, error) {
	if s.File != "" {
		text, err := os.ReadFile(s.File)
		if err != nil {
			return nil, fmt.Errorf("notify: fcm: credential_source: %w", err)
		}
		return bytes.TrimSpace(text), nil
	}
	header := http.Header{}
	for name, value := range s.Headers {
		header.Set(name, value)
	}
	r, err := p.get(ctx, s.URL, header)
	if err == nil && r.status != http.StatusOK {
		err = &ProviderError{Provider: "identity", Status: r.status}
	}
	return r.body, err
}
