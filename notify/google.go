package notify

import (
	"cmp"
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// A googleFile is one of Google's credential files, which say their kind:
//
//	service_account   a private key; a request signed with it is exchanged for a token
//	external_account  workload identity federation: the token of another identity
//	                  provider is exchanged for one of Google's
//	authorized_user   a developer's own, written by gcloud
type googleFile struct {
	Type string `json:"type"`

	ProjectID   string `json:"project_id"` // of a service account
	PrivateKey  string `json:"private_key"`
	KeyID       string `json:"private_key_id"`
	ClientEmail string `json:"client_email"`
	TokenURI    string `json:"token_uri"`

	ClientID     string `json:"client_id"` // of a user
	ClientSecret string `json:"client_secret"`
	RefreshToken string `json:"refresh_token"`

	federation // of an external account
}

// A googleSource obtains access tokens, all with the same identity.
type googleSource struct {
	mint   mintFunc
	secret []byte // what the fleet has in common; empty if nothing is secret
	user   bool   // Google wants to know which project pays for a user's requests
}

const (
	fcmScope       = "https://www.googleapis.com/auth/firebase.messaging"
	googleTokenURI = "https://oauth2.googleapis.com/token"
	googleMargin   = 5 * time.Minute // an access token is not used that long before its end
)

// readGoogleFile reads a credentials file. Errors quote nothing of it.
func readGoogleFile(text []byte) (f googleFile, err error) {
	if json.Unmarshal(text, &f) != nil {
		return f, errors.New("want the JSON of a service account, of workload identity federation or of a user")
	}
	switch f.Type {
	case "service_account", "":
		if f.ProjectID == "" || f.ClientEmail == "" || f.TokenURI == "" {
			err = errors.New("project_id, client_email or token_uri is missing")
		}
	case "authorized_user":
		if f.ClientID == "" || f.ClientSecret == "" || f.RefreshToken == "" {
			err = errors.New("client_id, client_secret or refresh_token is missing")
		}
	case "external_account":
		err = f.federation.check()
	default:
		err = errors.New("type: want service_account, external_account or authorized_user")
	}
	return f, err
}

// source returns where the tokens come from that the file stands for.
func (f googleFile) source(p *pool) (s googleSource, err error) {
	switch f.Type {
	case "external_account":
		return googleSource{mint: func(ctx context.Context) (string, time.Duration, error) {
			return f.federation.exchange(ctx, p)
		}}, nil
	case "authorized_user":
		return googleSource{mint: func(ctx context.Context) (string, time.Duration, error) {
			return askForToken(ctx, p, cmp.Or(f.TokenURI, googleTokenURI), url.Values{
				"grant_type": {"refresh_token"}, "refresh_token": {f.RefreshToken},
				"client_id": {f.ClientID}, "client_secret": {f.ClientSecret},
			})
		}, secret: []byte(f.ClientID + " " + f.RefreshToken), user: true}, nil
	}
	key, err := parseKey([]byte(f.PrivateKey))
	if err != nil {
		return s, fmt.Errorf("private_key: %w", err)
	}
	rsaKey, ok := key.(*rsa.PrivateKey)
	if !ok {
		return s, errors.New("private_key: want an RSA key")
	}
	return googleSource{
		mint: func(ctx context.Context) (string, time.Duration, error) {
			return f.assert(ctx, p, rsaKey)
		},
		// Of the parsed key: the files of two workers may differ in a line break.
		secret: append([]byte(f.ClientEmail+" "), x509.MarshalPKCS1PrivateKey(rsaKey)...),
	}, nil
}

// assert exchanges a request that the service account has signed for a token.
func (f googleFile) assert(ctx context.Context, p *pool, key *rsa.PrivateKey) (string, time.Duration, error) {
	now := clockNow(ctx).Unix()
	assertion, err := signJWT(key, f.KeyID, map[string]any{
		"iss": f.ClientEmail, "scope": fcmScope, "aud": f.TokenURI, "iat": now, "exp": now + 3600,
	})
	if err != nil {
		return "", 0, err
	}
	return askForToken(ctx, p, f.TokenURI, url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {assertion},
	})
}

// askForToken posts a form to a token endpoint of OAuth.
func askForToken(ctx context.Context, p *pool, address string, form url.Values) (string, time.Duration, error) {
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	r, failed := p.post(ctx, address, header, []byte(form.Encode()))
	if failed != nil {
		return "", 0, fmt.Errorf("asking for an access token: %w", failed.Err)
	}
	return readAccessToken(r)
}

// readAccessToken returns the token in Google's answer, and for how long to use it.
func readAccessToken(r reply) (token string, life time.Duration, err error) {
	var answer struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
		Error       string `json:"error"`
	}
	err = json.Unmarshal(r.body, &answer)
	if r.status != http.StatusOK || err != nil || answer.AccessToken == "" || answer.ExpiresIn <= 0 {
		return "", 0, &ProviderError{Provider: "google-oauth", Status: r.status, Code: word(answer.Error)}
	}
	return answer.AccessToken, usableFor(time.Duration(min(answer.ExpiresIn, 3600)) * time.Second), nil
}

// usableFor is how long a token of that life is used.
func usableFor(life time.Duration) time.Duration { return max(life-googleMargin, life/2) }
