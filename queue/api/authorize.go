package api

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/queue/access"
)

// bearerKey is under which the token of a request is in its context.
type bearerKey struct{}

// bearer returns the token that a request brings, or why it may do nothing.
func (h *handler) bearer(r *http.Request) (access.Token, *Problem) {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token, err := h.tokens.Find(text)
	switch {
	case err == nil && strings.EqualFold(scheme, "Bearer"):
		return token, nil
	case errors.Is(err, access.ErrExpired):
		return token, problemf(http.StatusUnauthorized, "token-expired", "%s; want another one", strings.TrimPrefix(err.Error(), "access: "))
	}
	return token, problemf(http.StatusUnauthorized, "unauthorized", `the token is missing or wrong; want the header "Authorization: Bearer TOKEN"`)
}

// Missing is what a token would have to allow.
type Missing struct {
	Scopes []access.Scope `json:"scopes"`          // one of them
	Queue  string         `json:"queue,omitempty"` // in this queue
}

// challenge is what the header WWW-Authenticate says (RFC 6750).
func (m *Missing) challenge() string {
	return fmt.Sprintf(`Bearer realm="waterclock", error="insufficient_scope", scope=%q`, m.Scopes[0])
}

// allowed returns why the token does not allow an operation, nil if it does.
func (c *call) allowed(op operation) error {
	named := strings.Contains(op.path, "{queue}")
	if slices.ContainsFunc(op.scopes, func(s access.Scope) bool { return c.token.May(s, c.queue) || !named && c.token.Has(s) }) {
		return nil
	}
	needs := make([]string, len(op.scopes))
	for i, s := range op.scopes {
		needs[i] = string(s)
	}
	want := "the scope " + strings.Join(needs, " or ")
	if named {
		want += fmt.Sprintf(" for queue %q", clip(c.queue))
	}
	p := problemf(http.StatusForbidden, "missing-scope", "token %s lacks %s: it has %s", c.token.Name, want, holds(c.token))
	p.Missing = &Missing{Scopes: op.scopes, Queue: clip(c.queue)}
	return p
}

// holds says what a token allows.
func holds(t access.Token) string {
	var scopes []string
	for _, s := range t.Scopes {
		scopes = append(scopes, string(s))
	}
	text := strings.Join(scopes, ", ")
	if len(t.Queues) > 0 {
		text += " for " + strings.Join(t.Queues, ", ")
	}
	return text
}
