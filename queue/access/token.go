package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// A Scope is a kind of thing that a token allows.
type Scope string

const (
	Offer  Scope = "offer"  // offer jobs, and see what became of a job with an ID
	Read   Scope = "read"   // look at everything
	Steer  Scope = "steer"  // pause, cancel, purge, revive, change policies and overrides; look at everything
	Decide Scope = "decide" // ask the limiter; it has no queue
)

// Scopes returns all scopes.
func Scopes() []Scope { return []Scope{Offer, Read, Steer, Decide} }

// OfQueues reports whether a scope is about queues. Decide is not.
func (s Scope) OfQueues() bool { return s != Decide }

// A Token says who presents it, and what it allows.
type Token struct {
	// Name is the author of what is done with the token; empty for the one of [Config].Token, whose users say who they are.
	Name string

	Scopes  []Scope
	Queues  []string  // names, exact or with * for any text
	Expires time.Time // from then on it is refused; zero for never

	hash [sha256.Size]byte // of its text
}

// whole returns the token that allows everything.
func whole(text string) Token {
	return Token{Scopes: Scopes(), Queues: []string{"*"}, hash: sha256.Sum256([]byte(text))}
}

// May reports whether the token allows something in a queue. For [Decide] the queue does not matter.
func (t Token) May(do Scope, queue string) bool {
	return t.Has(do) && (!do.OfQueues() || t.Sees(queue))
}

// Has reports whether the token has a scope, for whichever queue. Steer includes Read.
func (t Token) Has(do Scope) bool {
	return slices.Contains(t.Scopes, do) || do == Read && slices.Contains(t.Scopes, Steer)
}

// Sees reports whether the token is for a queue, with whichever scope.
func (t Token) Sees(queue string) bool {
	return slices.ContainsFunc(t.Queues, func(pattern string) bool { return matches(pattern, queue) })
}

// matches reports whether a name fits a pattern, in which each * stands for any text.
func matches(pattern, name string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return name == pattern
	}
	name, found := strings.CutPrefix(name, first)
	for found {
		middle, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(name, rest)
		}
		_, name, found = strings.Cut(name, middle)
		rest = after
	}
	return false
}

// Author returns the author of what is done with the token by somebody who says who they are: the name of the token first, which
// is certain.
func (t Token) Author(says string) string {
	switch {
	case t.Name == "":
		return says
	case says == "" || says == t.Name:
		return t.Name
	}
	return t.Name + " (" + says + ")"
}

// ID tells tokens apart, also those of one name, and reveals neither the token nor its hash.
func (t Token) ID() string {
	sum := sha256.Sum256(append([]byte("waterclock token\x00"), t.hash[:]...))
	return hex.EncodeToString(sum[:12])
}

// New returns a new token, which nobody can guess, and its hash as a file has it.
func New() (token, hash string) {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // it never fails
	token = "wct_" + base64.RawURLEncoding.EncodeToString(random)
	return token, Hash(token)
}

// Hash returns the hash of a token as a file has it.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashKind + hex.EncodeToString(sum[:])
}

const hashKind = "sha256:"
