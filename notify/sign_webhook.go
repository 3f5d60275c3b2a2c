package notify

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A signer signs requests with one secret: the signature stands after its version.
type signer struct {
	version string
	sign    func(content []byte) []byte
}

// secretKind says which secrets are allowed somewhere.
type secretKind uint8

const (
	symmetric  secretKind = 1 << iota // both sides have it, and both can sign with it
	asymmetric                        // the receiver has the public half only
)

var (
	errSecret = errors.New("want whsec_ and the base64 of 24 to 64 bytes, or whsk_ and that of an ed25519 private key")
	errShared = errors.New("a secret that several endpoints know lets each forge messages to the others; want " +
		"whsk_ and the base64 of an ed25519 private key")
)

// parseSecrets reads secrets of the allowed kinds. Errors quote nothing of them.
func parseSecrets(where string, texts []string, allowed secretKind) (all []signer, err error) {
	for i, text := range texts {
		s, kind, err := parseSecret(text)
		if err == nil && kind&allowed == 0 {
			err = errShared
		}
		if err != nil {
			return nil, fmt.Errorf("notify: webhook: %s[%d]: %w", where, i, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// parseSecret reads a secret as Standard Webhooks writes them. Without a prefix it is one
// that both sides have.
func parseSecret(text string) (signer, secretKind, error) {
	private, isPrivate := strings.CutPrefix(text, "whsk_")
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(private, "whsec_"))
	switch {
	case err != nil:
	case isPrivate && len(raw) == ed25519.SeedSize:
		return ed25519Signer(ed25519.NewKeyFromSeed(raw)), asymmetric, nil
	case isPrivate && len(raw) == ed25519.PrivateKeySize:
		key := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
		if key.Equal(ed25519.PrivateKey(raw)) { // or the public half is another's
			return ed25519Signer(key), asymmetric, nil
		}
	case !isPrivate && len(raw) >= 24 && len(raw) <= 64:
		return signer{"v1", func(content []byte) []byte {
			mac := hmac.New(sha256.New, raw)
			mac.Write(content)
			return mac.Sum(nil)
		}}, symmetric, nil
	}
	return signer{}, 0, errSecret
}

func ed25519Signer(key ed25519.PrivateKey) signer {
	return signer{"v1a", func(content []byte) []byte { return ed25519.Sign(key, content) }}
}

// A signedRequest is what is signed of an attempt.
type signedRequest struct {
	id   string // of the message, the same in every attempt
	at   time.Time
	body []byte
}

// sign writes the three headers of Standard Webhooks.
func sign(header http.Header, signers []signer, d signedRequest) {
	id := webhookID(d.id)
	at := strconv.FormatInt(d.at.Unix(), 10)
	content := append([]byte(id+"."+at+"."), d.body...)
	var signatures []string
	for _, s := range signers {
		signatures = append(signatures, s.version+","+base64.StdEncoding.EncodeToString(s.sign(content)))
	}
	header.Set("webhook-id", id)
	header.Set("webhook-timestamp", at)
	header.Set("webhook-signature", strings.Join(signatures, " "))
}

// webhookID is a message's ID as the header takes it: what is signed has full stops
// between its parts, so a part contains no dot.
func webhookID(id string) string {
	if id == "" {
		return "msg_" + rand.Text()
	}
	if len(id) <= 64 && word(strings.ReplaceAll(id, "-", "")) != "" {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "msg_" + b64.EncodeToString(sum[:24])
}
