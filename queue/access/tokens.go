package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/internal/livefile"
)

// Config says which tokens there are. One of Token and File is required; with both, all of them count.
type Config struct {
	// Token allows everything. It has at least [MinLength] bytes, none of them white space.
	Token string

	// File is the name of a file of tokens.
	File string

	// Logger gets what becomes of a changed file. nil is slog.Default().
	Logger *slog.Logger
}

// MinLength is the least length of a token in bytes; shorter ones could be guessed.
const MinLength = 16

// Errors of [Open] and [Tokens.Find].
var (
	ErrInvalidConfig = errors.New("access: invalid config")
	ErrInvalidFile   = errors.New("access: invalid file") // the text begins with the file and the line
	ErrUnknown       = errors.New("access: no such token")
	ErrExpired       = errors.New("access: the token has expired")
)

// Tokens are those that are accepted. They are safe for concurrent use.
type Tokens struct {
	cfg  Config
	key  []byte
	now  atomic.Pointer[[]Token]
	file livefile.File
}

// Open returns the tokens of a configuration, or an error that wraps [ErrInvalidConfig] or [ErrInvalidFile].
func Open(cfg Config) (*Tokens, error) {
	switch {
	case cfg.Token == "" && cfg.File == "":
		return nil, fmt.Errorf("%w: neither Token nor File is set; want one of them", ErrInvalidConfig)
	case cfg.Token != "" && len(cfg.Token) < MinLength:
		return nil, fmt.Errorf("%w: the token has %d bytes; want at least %d", ErrInvalidConfig, len(cfg.Token), MinLength)
	case strings.ContainsAny(cfg.Token, " \t\r\n"):
		return nil, fmt.Errorf("%w: white space in the token; want none", ErrInvalidConfig)
	}
	t := &Tokens{cfg: cfg, key: make([]byte, sha256.Size)}
	if cfg.Token == "" {
		_, _ = rand.Read(t.key) // it never fails
	} else {
		sum := sha256.Sum256([]byte("waterclock sessions\x00" + cfg.Token))
		t.key = sum[:]
	}
	if t.set(nil); cfg.File == "" {
		return t, nil
	}
	t.file = livefile.File{Name: cfg.File, What: "tokens", Logger: cfg.Logger, Use: t.use}
	err := t.file.Load()
	if err != nil && !errors.Is(err, ErrInvalidFile) {
		err = fmt.Errorf("%w: %w", ErrInvalidFile, err)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// use puts the tokens of the file in force, if it is valid.
func (t *Tokens) use(text []byte) error {
	tokens, err := Parse(t.cfg.File, text)
	if err == nil {
		t.set(tokens)
	}
	return err
}

// set puts the tokens of the file in force, beside the one of the configuration.
func (t *Tokens) set(tokens []Token) {
	if t.cfg.Token != "" {
		tokens = append(tokens, whole(t.cfg.Token))
	}
	t.now.Store(&tokens)
}

// Find returns the token with a text. The error is [ErrUnknown], or wraps [ErrExpired] and says since when. How long it takes does
// not tell how much of a text is right.
func (t *Tokens) Find(text string) (Token, error) {
	sum := sha256.Sum256([]byte(text))
	return t.find(func(token Token) int { return subtle.ConstantTimeCompare(sum[:], token.hash[:]) })
}

// ByID returns the token with an ID, as [Tokens.Find] does: to find out whether it still counts.
func (t *Tokens) ByID(id string) (Token, error) {
	return t.find(func(token Token) int { return subtle.ConstantTimeCompare([]byte(token.ID()), []byte(id)) })
}

// find looks at all tokens, also after it has found one. No two are equal.
func (t *Tokens) find(equal func(Token) int) (Token, error) {
	all, found := *t.now.Load(), -1
	for i, token := range all {
		found = subtle.ConstantTimeSelect(equal(token), i, found)
	}
	if found < 0 {
		return Token{}, ErrUnknown
	}
	if token := all[found]; token.Expires.IsZero() || time.Now().Before(token.Expires) {
		return token, nil
	}
	return Token{}, fmt.Errorf("%w: %s, at %s", ErrExpired, all[found].Name, all[found].Expires.UTC().Format(time.RFC3339))
}

// Len returns how many tokens there are, the expired ones among them.
func (t *Tokens) Len() int { return len(*t.now.Load()) }

// Key returns a secret for a purpose, with which sessions are signed. It comes from [Config].Token, so that all programs with that
// token have the same one; without it, it is a new one each time.
func (t *Tokens) Key(purpose string) []byte {
	mac := hmac.New(sha256.New, t.key)
	mac.Write([]byte(purpose))
	return mac.Sum(nil)
}

// Run reads the file each second until ctx ends, and puts it in force when it has changed; it returns nil. A file that has a
// mistake is refused as a whole, with one line in the log: the tokens in force stay.
func (t *Tokens) Run(ctx context.Context) error {
	if t.cfg.File == "" {
		<-ctx.Done()
		return nil
	}
	return t.file.Run(ctx)
}
