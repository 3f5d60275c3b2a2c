package notify

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// The rows of IANA's two registries that are not globally reachable, multicast, and
// addresses on either side of them.
func TestPublicAddresses(t *testing.T) {
	private := []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.0.1",
		"169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.170", "192.0.2.1", "192.88.99.1", "192.168.0.1",
		"198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.2.3", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::7f00:1",
		"64:ff9b:1::808:808", "100::1", "100:0:0:1::1", "2001::1", "2001:0:7f00:1::", "2001:2::1", "2001:10::1", "2001:1ff::1",
		"2001:db8::1", "2002:7f00:1::", "2002:808:808::1", "3fff::1", "3fff:fff::1", "5f00::1", "fc00::1", "fd12::1", "fe80::1",
		"fec0::1", "ff02::1", "4000::1", "1fff::1",
		"::1%lo", "::%lo", "fe80::1%eth0", "64:ff9b::7f00:1%lo", "2002:7f00:1::%lo", "2606:4700::1111%eth0", "::ffff:1.1.1.1%eth0",
	}
	public := []string{
		"1.1.1.1", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.1", "126.0.0.1", "128.0.0.1", "169.253.0.1", "172.15.0.1",
		"172.32.0.1", "191.255.255.255", "192.0.1.1", "192.0.3.1", "192.88.98.1", "192.167.0.1", "192.169.0.1", "198.17.0.1", "198.20.0.1",
		"223.255.255.255", "2001:200::1", "2001:4860:4860::8888", "2003::1", "2606:4700::1111", "2a00:1450::1", "3ffe::1",
		"::ffff:1.1.1.1", "64:ff9b::101:101",
	}
	for _, text := range private {
		if isPublic(netip.MustParseAddr(text)) {
			t.Errorf("%s passes", text)
		}
		if err := refusePrivate("tcp", "["+text+"]:443", nil); !errors.Is(err, errPrivate) || strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range public {
		if err := refusePrivate("tcp", netip.AddrPortFrom(netip.MustParseAddr(text), 443).String(), nil); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"", "example.com:443", "1.1.1.1", "/run/docker.sock"} {
		if refusePrivate("tcp", text, nil) == nil {
			t.Errorf("%q passes", text)
		}
	}
}

// Whatever a connection fails of, its error has none of the words that came with it.
func TestErrorsNameNoHost(t *testing.T) {
	const host = "s3cr3t.example"
	reason := func(err error) error {
		return reasonOf(&url.Error{Op: "Post", URL: "https://" + host, Err: err})
	}
	for want, err := range map[error]error{
		errNoHost:                &net.DNSError{Err: "no such host", Name: host, IsNotFound: true},
		errResolving:             &net.DNSError{Err: "server misbehaving", Name: host},
		errCertificate:           &tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{host}}, Host: host}},
		errTLS:                   tls.AlertError(40),
		errConnection:            errors.New("something about " + host),
		errPrivate:               &net.OpError{Op: "dial", Err: errPrivate},
		errProxy:                 &net.OpError{Op: "proxyconnect", Err: errProxy},
		context.Canceled:         fmt.Errorf("%s: %w", host, context.Canceled),
		context.DeadlineExceeded: &net.OpError{Op: "dial", Err: context.DeadlineExceeded},
	} {
		if got := reason(err); got != want || strings.Contains(fmt.Sprintf("%v %+v", got, got), "s3cr3t") {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
	if got := reason(&net.DNSError{Err: "i/o timeout", Name: host, IsTimeout: true}); got != errResolving {
		t.Errorf("a resolver that does not answer: %v", got)
	}
}
