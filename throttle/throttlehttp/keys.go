package throttlehttp

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
)

// Address is a [Limit.Key]: the address that the connection comes from; of IPv6 the network of 64
// bits, since one machine has all of it. Behind a proxy it is the proxy's: then write a Key that
// reads what that proxy, and nobody else, sets.
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

// Header returns a [Limit.Key]: the value of a header, such as an API key. Redis gets a digest of
// it. Check it first: whoever makes up values has the limits of nobody.
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
