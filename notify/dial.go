package notify

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Push subscriptions and webhook endpoints are URLs that users write. The connections to them go
// to public addresses alone: a user who can name an address must not reach what only this machine
// can reach. The check comes after name resolution, on the address that is really dialled, so a
// name that changes its address in between gains nothing.

const dialTimeout = 10 * time.Second

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dialAnywhere connects to every address, for the hosts that the operator has chosen.
func dialAnywhere() dialFunc {
	return (&net.Dialer{Timeout: dialTimeout}).DialContext
}

// dialPublic connects to public addresses alone.
func dialPublic() dialFunc {
	return (&net.Dialer{Timeout: dialTimeout, Control: refusePrivate}).DialContext
}

// errPrivate refuses an address. It does not name it: endpoints are secrets.
var errPrivate = errors.New("not a public address")

// refusePrivate is the Control of a [net.Dialer].
func refusePrivate(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !isPublic(at.Addr()) {
		return errPrivate
	}
	return nil
}

// isPublic tells whether an address is one of the public internet: a global unicast
// address that IANA has reserved for nothing else. An address with a zone is local.
func isPublic(ip netip.Addr) bool {
	if !ip.IsValid() || ip.Zone() != "" {
		return false
	}
	ip = ip.Unmap()
	if nat64.Contains(ip) {
		b := ip.As16()
		ip = netip.AddrFrom4([4]byte(b[12:]))
	}
	if ip.Is4() {
		return !within(ip, specialIPv4)
	}
	return globalIPv6.Contains(ip) && !within(ip, specialIPv6)
}

// isPublicHost tells whether the host of a URL can be one of the public internet: a public
// address, or a name that no special use is reserved for. It is for hosts that a proxy resolves,
// whose addresses are not seen here. An address in another form than the usual one (127.1,
// 0x7f000001) and a name that is not ASCII, which may be an address after its conversion, are
// refused.
func isPublicHost(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return isPublic(ip)
	}
	labels := strings.Split(strings.ToLower(strings.TrimSuffix(host, ".")), ".")
	for _, label := range labels {
		if label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	last := labels[len(labels)-1]
	number := last[0] >= '0' && last[0] <= '9' // no top-level domain begins with a digit
	return len(labels) > 1 && !number && !slices.Contains(insideNames, last) && !strings.HasSuffix("."+strings.Join(labels, "."), ".home.arpa")
}

// insideNames are top-level domains that have no public hosts: RFC 6761, RFC 6762 with its
// appendix G, and ICANN's internal.
var insideNames = []string{
	"localhost", "local", "internal", "intranet", "private", "corp", "home", "lan", "invalid", "test", "onion",
}

func within(ip netip.Addr, table []netip.Prefix) bool {
	for _, prefix := range table {
		if prefix.Contains(ip) {
			return true
		}
	}
	return false
}

// The tables hold the entries of IANA's special-purpose address registries that are not
// globally reachable, and what translates or relays to other addresses.
// https://www.iana.org/assignments/iana-ipv4-special-registry
// https://www.iana.org/assignments/iana-ipv6-special-registry
var (
	specialIPv4 = prefixes(
		"0.0.0.0/8",       // this network
		"10.0.0.0/8",      // private use
		"100.64.0.0/10",   // shared address space: carrier-grade NAT
		"127.0.0.0/8",     // loopback
		"169.254.0.0/16",  // link-local: the metadata of clouds
		"172.16.0.0/12",   // private use
		"192.0.0.0/24",    // IETF protocol assignments
		"192.0.2.0/24",    // documentation
		"192.88.99.0/24",  // 6to4 relays
		"192.168.0.0/16",  // private use
		"198.18.0.0/15",   // benchmarking
		"198.51.100.0/24", // documentation
		"203.0.113.0/24",  // documentation
		"224.0.0.0/4",     // multicast
		"240.0.0.0/4",     // reserved, and the limited broadcast
	)

	// All that IANA has allocated as global unicast. Outside lie the loopback, ::/96,
	// link-local, site-local, unique local, multicast, 100::/64, 5f00::/16 and the local
	// translation prefix 64:ff9b:1::/48.
	globalIPv6 = netip.MustParsePrefix("2000::/3")

	specialIPv6 = prefixes(
		"2001::/23",     // IETF protocol assignments: Teredo, benchmarking, ORCHID
		"2001:db8::/32", // documentation
		"2002::/16",     // 6to4: an IPv4 address in disguise
		"3fff::/20",     // documentation
	)

	// NAT64: the IPv4 address in the last 32 bits is what is reached.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}
