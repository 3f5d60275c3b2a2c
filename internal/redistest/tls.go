package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A Certificate is one that a server on the loopback can show, signed by itself.
type Certificate struct {
	File, Key string // in PEM; to trust it, point SSL_CERT_FILE to File
	pool      *x509.CertPool
}

// NewCertificate makes a certificate, in files that end with the test.
func NewCertificate(t testing.TB) Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redistest"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:        true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := Certificate{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), x509.NewCertPool()}
	for file, block := range map[string]*pem.Block{
		c.File: {Type: "CERTIFICATE", Bytes: der}, c.Key: {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return c
}

// StartTLS starts a redis-server that speaks nothing but TLS, with the extra arguments.
func StartTLS(t testing.TB, c Certificate, args ...string) *Server {
	return start(t, &tls.Config{RootCAs: c.pool}, func(port string) []string {
		return append([]string{
			"--port", "0", "--tls-port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "",
			"--appendonly", "no", "--loglevel", "warning", "--tls-cert-file", c.File, "--tls-key-file", c.Key,
			"--tls-ca-cert-file", c.File, "--tls-auth-clients", "no",
		}, args...)
	})
}
