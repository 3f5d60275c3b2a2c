package access

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"
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
	cfg     Config
	key     []byte
	now     atomic.Pointer[[]Token]
	text    []byte // of the file, as it is in force
	refused string // why the file was refused last time, not to say it every time
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
	var tokens []Token
	if cfg.File != "" {
		text, err := read(cfg.File)
		if err != nil {
			return nil, err
		}
		if tokens, err = Parse(cfg.File, text); err != nil {
			return nil, err
		}
		t.text = text
	}
	t.set(tokens)
	return t, nil
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

// looksAtFile is how often Run looks at the file.
const looksAtFile = time.Second

// Run reads the file each second until ctx ends, and puts it in force when it has changed; it returns nil. A file that has a
// mistake is refused as a whole, with one line in the log: the tokens in force stay.
func (t *Tokens) Run(ctx context.Context) error {
	if t.cfg.File == "" {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(looksAtFile)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			t.reload()
		}
	}
}

func (t *Tokens) reload() {
	log := cmp.Or(t.cfg.Logger, slog.Default())
	text, err := read(t.cfg.File)
	if err == nil && t.refused == "" && bytes.Equal(text, t.text) {
		return
	}
	var tokens []Token
	if err == nil {
		tokens, err = Parse(t.cfg.File, text)
	}
	if err != nil {
		if t.refused != err.Error() {
			log.Error("refused the tokens; the old ones stay", "err", err)
		}
		t.refused = err.Error()
		return
	}
	t.text, t.refused = text, ""
	t.set(tokens)
	log.Info("new tokens", "file", t.cfg.File, "tokens", len(tokens))
}

// maxFile is how many bytes a file of tokens has at most.
const maxFile = 1 << 20

func read(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidFile, err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrInvalidFile, err)
	case len(text) > maxFile:
		return nil, mistake(fmt.Sprintf("%s:1: the file has more than %d bytes", name, maxFile))
	}
	return text, nil
}
