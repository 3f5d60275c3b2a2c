package notifytest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
)

// claims are what our providers read in web tokens.
type claims struct {
	Issuer   string `json:"iss"`
	Issued   int64  `json:"iat"`
	Expires  int64  `json:"exp"`
	Audience string `json:"aud"`
	Subject  string `json:"sub"`
	Scope    string `json:"scope"`
}

// verifyToken checks a web token against a public key and returns what it says, and the
// ID of its key.
func verifyToken(token, alg string, key crypto.PublicKey) (c claims, keyID string, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, "", errors.New("not three parts")
	}
	var raw [3][]byte
	for i, part := range parts {
		if raw[i], err = base64.RawURLEncoding.Strict().DecodeString(part); err != nil {
			return c, "", errors.New("not base64url without padding")
		}
	}
	var header struct {
		Alg string `json:"alg"`
		Kid string `json:"kid"`
	}
	if json.Unmarshal(raw[0], &header) != nil || header.Alg != alg {
		return c, "", errors.New("the algorithm is not " + alg)
	}
	if json.Unmarshal(raw[1], &c) != nil {
		return c, "", errors.New("the claims are no JSON")
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	good := false
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		good = len(raw[2]) == 64 &&
			ecdsa.Verify(k, sum[:], new(big.Int).SetBytes(raw[2][:32]), new(big.Int).SetBytes(raw[2][32:]))
	case *rsa.PublicKey:
		good = rsa.VerifyPKCS1v15(k, crypto.SHA256, sum[:], raw[2]) == nil
	}
	if !good {
		return c, "", errors.New("the signature is wrong")
	}
	return c, header.Kid, nil
}

// inPEM writes a private key as the providers hand it out.
func inPEM(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
