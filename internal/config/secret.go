package config

import (
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"github.com/waterclock/waterclock/queue/access"
)

// ReadSecret reads a file that holds a password or a token, without the end of its line.
func ReadSecret(flag, file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", Usagef("--%s: %v", flag, err)
	}
	secret := strings.TrimRight(string(data), "\r\n")
	if secret == "" || strings.ContainsAny(secret, "\r\n") {
		return "", Usagef("--%s %s: want one line that is not empty", flag, file)
	}
	return secret, nil
}

// Token returns the token in a file or, if that has no name, the one of WATERCLOCK_TOKEN; "" if
// there is none.
func Token(file string) (string, error) {
	if file == "" {
		return os.Getenv("WATERCLOCK_TOKEN"), nil
	}
	return ReadSecret("token-file", file)
}

// Tokens returns the tokens that a program accepts: that of [Token], and those of a file of tokens; nil if there are none. Who makes them
// runs them.
func Tokens(tokenFile, tokensFile string, log *slog.Logger) (*access.Tokens, error) {
	token, err := Token(tokenFile)
	if err != nil || token == "" && tokensFile == "" {
		return nil, err
	}
	tokens, err := access.Open(access.Config{Token: token, File: tokensFile, Logger: log})
	if err != nil {
		return nil, Usagef("%s", strings.TrimPrefix(strings.TrimPrefix(err.Error(), "access: invalid config: "), "access: invalid file: "))
	}
	return tokens, nil
}

// WithPassword returns a URL of Redis with the password in a file, so that it does not stand
// among the arguments, where every user of the machine sees it. Without a file it is the URL.
func WithPassword(rawURL, file string) (string, error) {
	if file == "" {
		return rawURL, nil
	}
	if rawURL == Embedded {
		return "", Usagef("--password-file: the embedded Redis has no password")
	}
	t, err := parseURL(rawURL)
	if err != nil {
		return "", Usagef("--redis: %v", err)
	}
	if t.password != "" {
		return "", Usagef("--password-file: the URL has a password already; want one of them")
	}
	password, err := ReadSecret("password-file", file)
	if err != nil {
		return "", err
	}
	scheme, after, _ := strings.Cut(rawURL, "://")
	if _, hosts, found := strings.Cut(after, "@"); found {
		after = hosts // parseURL has found no other @
	}
	return fmt.Sprintf("%s://%s@%s", scheme, url.UserPassword(t.user, password), after), nil
}
