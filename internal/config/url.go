package config

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A target is where Redis is, taken apart so that its password cannot get into an
// error: what is passed on to other parsers, or quoted, does not hold it.
type target struct {
	kind           string // "", sentinel or cluster
	scheme         string // redis or rediss
	hosts          []string
	rest           string // path and query
	user, password string
}

var (
	errURL = errors.New("want a URL such as redis://127.0.0.1:6379/0, " +
		"redis-sentinel://HOST,HOST/0?master=NAME, redis-cluster://HOST,HOST, or embedded")
	errEscape = errors.New("the user or password holds a character that must be percent-encoded, such as %2F for /")
)

// parseURL takes a URL apart:
//
//	redis://[user:password@]host[:port][/db]
//	redis-sentinel://[user:password@]host[:port],host[:port][/db]?master=NAME
//	redis-cluster://[user:password@]host[:port],host[:port]
//
// User and password are Redis's own; those of sentinels are parameters,
// sentinel_username and sentinel_password. The options of go-redis are parameters too:
// ?pool_size=50&read_timeout=5s. With rediss in place of redis the connection is encrypted.
func parseURL(raw string) (t target, err error) {
	scheme, after, found := strings.Cut(raw, "://")
	if !found {
		return t, errURL
	}
	t.scheme, t.kind, _ = strings.Cut(scheme, "-")
	if t.scheme != "redis" && t.scheme != "rediss" || t.kind != "" && t.kind != "sentinel" && t.kind != "cluster" ||
		strings.HasSuffix(scheme, "-") {
		return t, errURL
	}
	authority := after
	if end := strings.IndexAny(after, "/?#"); end >= 0 {
		authority, t.rest = after[:end], after[end:]
	}
	if strings.Contains(t.rest, "@") {
		return t, errEscape // the authority ended in the middle of the password
	}
	hosts := authority
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		hosts = authority[at+1:]
		user, password, _ := strings.Cut(authority[:at], ":")
		var userErr, passwordErr error
		t.user, userErr = url.PathUnescape(user)
		t.password, passwordErr = url.PathUnescape(password)
		if userErr != nil || passwordErr != nil {
			return t, errEscape
		}
	}
	t.hosts, err = t.addresses(hosts)
	return t, err
}

// addresses completes the hosts with the port that their kind has by default.
func (t target) addresses(hosts string) (addresses []string, err error) {
	port := "6379"
	if t.kind == "sentinel" {
		port = "26379"
	}
	for host := range strings.SplitSeq(hosts, ",") {
		u, err := url.Parse("redis://" + host)
		if err != nil || u.Hostname() == "" {
			return nil, fmt.Errorf("host %q: want HOST or HOST:PORT", host)
		}
		addresses = append(addresses, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)))
	}
	if t.kind == "" && len(addresses) > 1 {
		return nil, errors.New("several hosts: want redis-sentinel:// or redis-cluster://")
	}
	return addresses, nil
}

// client returns a client of the target. Nothing is dialled yet. What go-redis parses
// knows neither lists of hosts nor, here, the password.
func (t target) client() (redis.UniversalClient, error) {
	u, err := url.Parse(t.scheme + "://" + t.hosts[0] + t.rest)
	if err != nil || u.Fragment != "" {
		return nil, errURL
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errURL
	}
	for _, host := range t.hosts[1:] {
		query.Add("addr", host)
	}
	u.RawQuery = query.Encode()
	switch t.kind {
	case "sentinel":
		return t.sentinel(u, query)
	case "cluster":
		return t.cluster(u)
	}
	options, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, clean(err)
	}
	options.Username, options.Password = t.user, t.password
	options.ContextTimeoutEnabled = true
	return redis.NewClient(options), nil
}

func (t target) sentinel(u *url.URL, query url.Values) (redis.UniversalClient, error) {
	master := query.Get("master")
	if master == "" {
		return nil, errors.New("a redis-sentinel URL needs the name of its master: ?master=NAME")
	}
	user, password := query.Get("sentinel_username"), query.Get("sentinel_password")
	for _, name := range []string{"master", "sentinel_username", "sentinel_password"} {
		query.Del(name)
	}
	query.Set("master_name", master)
	u.RawQuery = query.Encode()
	options, err := redis.ParseFailoverURL(u.String())
	if err != nil {
		return nil, clean(err)
	}
	options.Username, options.Password = t.user, t.password
	options.SentinelUsername, options.SentinelPassword = user, password
	options.TLSConfig = anyHost(options.TLSConfig)
	options.ContextTimeoutEnabled = true
	return redis.NewFailoverClient(options), nil
}

func (t target) cluster(u *url.URL) (redis.UniversalClient, error) {
	if u.Path != "" && u.Path != "/" && u.Path != "/0" {
		return nil, errors.New("a Redis Cluster has only database 0")
	}
	u.Path = ""
	options, err := redis.ParseClusterURL(u.String())
	if err != nil {
		return nil, clean(err)
	}
	options.Username, options.Password = t.user, t.password
	options.TLSConfig = anyHost(options.TLSConfig)
	options.ContextTimeoutEnabled = true
	return redis.NewClusterClient(options), nil
}

// anyHost lets each connection check the certificate for the name that it dials.
func anyHost(c *tls.Config) *tls.Config {
	if c != nil {
		c.ServerName = ""
	}
	return c
}

func clean(err error) error {
	return errors.New(strings.TrimPrefix(err.Error(), "redis: "))
}
