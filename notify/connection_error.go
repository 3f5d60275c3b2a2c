package notify

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
)

// A connectionError says why there was no answer, in fixed words. The errors of net and
// crypto/x509 name the host, and the host of an endpoint may be a secret.
type connectionError struct {
	provider string
	reason   error
}

func (e *connectionError) Error() string {
	return "notify: " + e.provider + ": no answer: " + e.reason.Error()
}

func (e *connectionError) Unwrap() error { return e.reason }

var (
	errNoHost      = errors.New("no such host")
	errResolving   = errors.New("name resolution failed")
	errRefused     = errors.New("connection refused")
	errNoRoute     = errors.New("no route to the host")
	errClosedConn  = errors.New("connection closed")
	errCertificate = errors.New("certificate not trusted")
	errTLS         = errors.New("TLS handshake failed")
	errProxy       = errors.New("refused by the proxy")
	errConnection  = errors.New("connection failed")

	// errCrowded says that the host has answered others, and that this request was not sent.
	errCrowded = errors.New("no free connection in time; want more Connections, if the host allows them, or a lower rate")
)

// reasonOf reduces an error of a connection to one of the above, or to the end of its context.
func reasonOf(err error) error {
	var panicked *panicError
	if errors.As(err, &panicked) {
		return panicked
	}
	for _, known := range []error{errPrivate, errProxy, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return known
		}
	}
	var dns *net.DNSError
	var timeout net.Error
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return errNoHost
	case errors.As(err, &dns):
		return errResolving
	case errors.As(err, &certificate):
		return errCertificate
	case errors.As(err, &record), errors.As(err, &alert):
		return errTLS
	case errors.As(err, &timeout) && timeout.Timeout():
		return context.DeadlineExceeded
	case errors.Is(err, syscall.ECONNREFUSED):
		return errRefused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return errNoRoute
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errClosedConn
	}
	return errConnection
}
