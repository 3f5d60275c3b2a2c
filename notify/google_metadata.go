package notify

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"os"
	"time"
)

// metadataHost answers on Google's machines. The environment variable is the one that
// Google's own libraries read.
func metadataHost() string {
	return cmp.Or(os.Getenv("GCE_METADATA_HOST"), "metadata.google.internal")
}

// metadataSource asks the machine's metadata server for the tokens of its service account:
// on Compute Engine, GKE and Cloud Run there is no key.
func metadataSource(timeout time.Duration) googleSource {
	p := &pool{provider: "google-metadata", timeout: timeout, clients: []*client{{Client: http.Client{
		// Never through a proxy: the address is the machine's own.
		Transport: &http.Transport{DialContext: dialAnywhere(), MaxIdleConnsPerHost: 1, IdleConnTimeout: 10 * time.Second},
	}}}}
	address := "http://" + metadataHost() + "/computeMetadata/v1/instance/service-accounts/default/token?scopes=" + url.QueryEscape(fcmScope)
	return googleSource{mint: func(ctx context.Context) (string, time.Duration, error) {
		r, err := p.get(ctx, address, http.Header{"Metadata-Flavor": {"Google"}})
		if err != nil {
			return "", 0, err
		}
		return readAccessToken(r)
	}}
}
