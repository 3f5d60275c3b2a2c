package config

import (
	"errors"
	"fmt"
	"net"
)

// Listen opens the address of --http: 127.0.0.1:9090, or :9090 for all interfaces.
func Listen(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--http %s: %w; want an address such as 127.0.0.1:9090", address, errors.Unwrap(err))
	}
	return listener, nil
}
