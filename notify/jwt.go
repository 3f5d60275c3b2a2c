package notify

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
)

// signJWT returns a JSON Web Token, signed with RS256 or ES256 as the key is. With a key
// ID it stands in the header.
func signJWT(key crypto.Signer, keyID string, claims any) (string, error) {
	header := map[string]string{"alg": "ES256", "typ": "JWT"}
	if _, ok := key.(*rsa.PrivateKey); ok {
		header["alg"] = "RS256"
	}
	if keyID != "" {
		header["kid"] = keyID
	}
	head, err := json.Marshal(header)
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	text := b64.EncodeToString(head) + "." + b64.EncodeToString(body)
	digest := sha256.Sum256([]byte(text))
	signature, err := signDigest(key, digest[:])
	if err != nil {
		return "", fmt.Errorf("notify: signing a token: %w", err)
	}
	return text + "." + b64.EncodeToString(signature), nil
}

// b64 is the base64 of all web tokens.
var b64 = base64.RawURLEncoding

func signDigest(key crypto.Signer, digest []byte) ([]byte, error) {
	switch k := key.(type) {
	case *rsa.PrivateKey:
		return rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, digest)
	case *ecdsa.PrivateKey:
		// As r and s side by side, not as ASN.1.
		r, s, err := ecdsa.Sign(rand.Reader, k, digest)
		if err != nil {
			return nil, err
		}
		signature := make([]byte, 64)
		r.FillBytes(signature[:32])
		s.FillBytes(signature[32:])
		return signature, nil
	}
	return nil, errors.New("neither an RSA nor an ECDSA key")
}

// parseKey reads a private key in PEM, as the providers hand them out. Errors say nothing
// about what was there: it is a secret, if perhaps the wrong one.
func parseKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no PEM block, -----BEGIN PRIVATE KEY-----")
	}
	if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		if signer, ok := key.(crypto.Signer); ok {
			return signer, nil
		}
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	return nil, errors.New("no private key that could be read")
}
