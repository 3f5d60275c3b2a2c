package queue

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
)

// A Callback is an endpoint that is told when a job is done, dropped after it was accepted, or dead. Package callback offers
// the message, a job of a queue of its own, from which a worker with the webhook sender delivers it.
type Callback struct {
	// URL is the endpoint, http or https. With Secret it has at most 800 bytes.
	URL string

	// Secret signs what the endpoint gets, as Standard Webhooks says: "whsec_" and base64, or several with spaces between.
	// Without one the worker's own key does. Whoever can read Redis can read it.
	Secret string
}

// text returns a callback as an envelope keeps it: a URL has no spaces.
func (c Callback) text() string {
	if c.Secret == "" {
		return c.URL
	}
	return c.URL + " " + c.Secret
}

func readCallback(text string) (c Callback) {
	c.URL, c.Secret, _ = strings.Cut(text, " ")
	return c
}

// maxCallback is how long a callback may be, in bytes: with an ID it has to be in the beginning that a record keeps.
const maxCallback = 800

// validate returns an error wrapping [ErrInvalidJob] that says what is wrong, or nil.
func (c Callback) validate() error {
	if c == (Callback{}) {
		return nil
	}
	u, err := url.Parse(c.URL)
	switch {
	case c.URL == "":
		return fmt.Errorf("%w: callback.url is missing", ErrInvalidJob)
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.ContainsAny(c.URL, " \t\r\n"):
		return fmt.Errorf(`%w: callback.url is no URL of an endpoint; want one such as "https://shop.example/hooks/waterclock"`, ErrInvalidJob)
	case len(c.text()) > maxCallback:
		return fmt.Errorf("%w: callback has %d bytes; url and secret have at most %d", ErrInvalidJob, len(c.text()), maxCallback)
	}
	for _, secret := range strings.Fields(c.Secret) {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if !strings.HasPrefix(secret, "whsec_") || err != nil || len(key) < 24 || len(key) > 64 {
			return fmt.Errorf("%w: callback.secret is no secret; want whsec_ and the base64 of 24 to 64 bytes", ErrInvalidJob)
		}
	}
	return nil
}
