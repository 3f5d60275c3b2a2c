package notify

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
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

var errSecret = errors.New("want whsec_ and the base64 of 24 to 64 bytes, or whsk_ and that of an ed25519 private key")

// parseSecret reads a secret as Standard Webhooks writes them. Without a prefix it is one
// that both sides have.
func parseSecret(text string) (signer, error) {
	private, asymmetric := strings.CutPrefix(text, "whsk_")
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(private, "whsec_"))
	switch {
	case err != nil:
	case asymmetric && len(raw) == ed25519.SeedSize:
		return ed25519Signer(ed25519.NewKeyFromSeed(raw)), nil
	case asymmetric && len(raw) == ed25519.PrivateKeySize:
		key := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
		if key.Equal(ed25519.PrivateKey(raw)) { // or the public half is another's
			return ed25519Signer(key), nil
		}
	case !asymmetric && len(raw) >= 24 && len(raw) <= 64:
		return signer{"v1", func(content []byte) []byte {
			mac := hmac.New(sha256.New, raw)
			mac.Write(content)
			return mac.Sum(nil)
		}}, nil
	}
	return signer{}, errSecret
}

func ed25519Signer(key ed25519.PrivateKey) signer {
	return signer{"v1a", func(content []byte) []byte { return ed25519.Sign(key, content) }}
}

// sign writes the three headers of Standard Webhooks. The ID is the same in every
// attempt, the time is the attempt's.
func (w *Webhook) sign(header http.Header, id string, now time.Time, body []byte) {
	id = webhookID(id)
	at := strconv.FormatInt(now.Unix(), 10)
	content := append([]byte(id+"."+at+"."), body...)
	var signatures []string
	for _, s := range w.signers {
		signatures = append(signatures, s.version+","+base64.StdEncoding.EncodeToString(s.sign(content)))
	}
	header.Set("webhook-id", id)
	header.Set("webhook-timestamp", at)
	header.Set("webhook-signature", strings.Join(signatures, " "))
}

// webhookID is a message's ID as the header takes it: what is signed has full stops
// between its parts, so there is none inside of one.
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
