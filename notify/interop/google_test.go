package interop

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/waterclock/waterclock/notify/notifytest"
)

// The files and the metadata server that our sender reads are what Google's own library
// reads: it gets access tokens from the stand-in with each of them.
func TestGoogleCredentials(t *testing.T) {
	p, err := notifytest.NewFCM(notifytest.Options{TCP: true})
	must(t, err)
	defer p.Close()
	conn := p.Client()
	defer conn.CloseIdleConnections()
	ctx := context.WithValue(t.Context(), oauth2.HTTPClient, conn)
	const scope = "https://www.googleapis.com/auth/firebase.messaging"
	file := filepath.Join(t.TempDir(), "subject")
	must(t, os.WriteFile(file, []byte(notifytest.Subject), 0o600))
	source := map[string]any{"file": file}
	for _, tt := range []struct {
		name   string
		kind   google.CredentialsType
		text   []byte
		minted int
	}{
		{"a service account", google.ServiceAccount, p.ServiceAccount, 1},
		{"a user", google.AuthorizedUser, p.UserCredentials(), 1},
		{"workload identity", google.ExternalAccount, p.WorkloadIdentity(source, false), 1},
		{"workload identity as a service account", google.ExternalAccount, p.WorkloadIdentity(source, true), 2},
	} {
		before := p.Minted()
		c, err := google.CredentialsFromJSONWithType(ctx, tt.text, tt.kind, scope)
		must(t, err)
		token, err := c.TokenSource.Token()
		if err != nil || !strings.HasPrefix(token.AccessToken, "ya29.") || p.Minted() != before+tt.minted {
			t.Errorf("%s: %v, %d tokens; refused %q", tt.name, err, p.Minted()-before, p.Refusals())
		}
	}
	machine := httptest.NewServer(p.Metadata())
	defer machine.Close()
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(machine.URL, "http://"))
	if token, err := google.ComputeTokenSource("", scope).Token(); err != nil || !strings.HasPrefix(token.AccessToken, "ya29.") {
		t.Errorf("the metadata server: %v", err)
	}
}
