package throttlehttp

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
)

// Address is a [Limit.Key]: it returns the address of the client's end of the connection; of an
// IPv6 address the network of 64 bits, since one machine can use all of its addresses. Behind a
// proxy this is the proxy's address: then write a Key that reads a header which only the proxy
// can set.
func Address(r *http.Request) (string, error) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "", fmt.Errorf("the connection's address: %w", err)
	}
	address := peer.Addr().Unmap().WithZone("")
	if address.Is4() {
		return address.String(), nil
	}
	network, err := address.Prefix(64)
	return network.String(), err
}

// Header returns a [Limit.Key] that returns the value of a header, such as an API key. Redis gets
// a digest of it. Authenticate the value first: a client that makes up new values evades the
// limits.
func Header(name string) func(*http.Request) (string, error) {
	return func(r *http.Request) (string, error) {
		value := r.Header.Get(name)
		if value == "" {
			return "", fmt.Errorf("header %s is missing", name)
		}
		digest := sha256.Sum256([]byte(value))
		return hex.EncodeToString(digest[:16]), nil
	}
}
