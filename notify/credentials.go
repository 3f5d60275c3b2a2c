package notify

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// A credential is a short-lived token that a sender shows to its provider. All workers of
// a fleet share one through Redis: Apple refuses keys that mint more than one in twenty
// minutes, and Google's token costs a request.
//
// In Redis it lies sealed with a key that is derived from the private key which mints
// it: who can read Redis cannot send.
type credential struct {
	rdb  redis.UniversalClient // nil: each process has its own
	name string
	seal cipher.AEAD

	// mint makes a new token and says how long it may be used.
	mint func(ctx context.Context) (token string, life time.Duration, err error)

	// young is the age under which a token that is refused is not to be replaced: a
	// fresh one would be refused too.
	young time.Duration

	turn chan struct{} // holds one: whose turn it is
	held mintedToken
}

type mintedToken struct {
	text           string
	minted, usable time.Time
}

// newCredential returns a credential of that kind, named after the secret that mints it.
func newCredential(rdb redis.UniversalClient, kind string, secret []byte) (*credential, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "waterclock "+kind+" seal", 32)
	if err != nil {
		return nil, err
	}
	name, err := hkdf.Key(sha256.New, secret, nil, "waterclock "+kind+" name", 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &credential{
		rdb: rdb, name: "wc:notify:{" + kind + ":" + hex.EncodeToString(name) + "}", seal: seal,
		turn: make(chan struct{}, 1),
	}, nil
}

// get returns a token to use now.
func (c *credential) get(ctx context.Context) (string, error) {
	if err := c.lock(ctx); err != nil {
		return "", err
	}
	defer c.unlock()
	if now := clockNow(ctx); now.Before(c.held.usable) {
		return c.held.text, nil
	}
	if c.rdb == nil {
		return c.renew(ctx)
	}
	return c.share(ctx)
}

// refused notes that a provider did not take a token. It returns true if a new one will
// be tried, false if it was young: then something else is wrong.
func (c *credential) refused(ctx context.Context, token string) bool {
	if c.lock(ctx) != nil {
		return true
	}
	defer c.unlock()
	if c.held.text != token {
		return true // replaced meanwhile
	}
	if clockNow(ctx).Sub(c.held.minted) < c.young {
		return false
	}
	c.held = mintedToken{}
	if c.rdb != nil {
		if shared, err := c.load(ctx); err == nil && shared.text == token {
			c.rdb.Del(ctx, c.name)
		}
	}
	return true
}

func (c *credential) lock(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *credential) unlock() { <-c.turn }

func (c *credential) renew(ctx context.Context) (string, error) {
	token, life, err := c.mint(ctx)
	if err != nil {
		return "", err
	}
	now := clockNow(ctx)
	c.held = mintedToken{token, now, now.Add(life)}
	return token, nil
}

// share takes the fleet's token from Redis, or mints it for all.
func (c *credential) share(ctx context.Context) (string, error) {
	const turn, look = 20 * time.Second, 50 * time.Millisecond
	me := rand.Text()
	for {
		shared, err := c.load(ctx)
		if err == nil && clockNow(ctx).Before(shared.usable) {
			c.held = shared
			return shared.text, nil
		}
		if err != nil && !errors.Is(err, redis.Nil) && !errors.Is(err, errSeal) {
			return "", fmt.Errorf("notify: looking for the fleet's token: %w", err)
		}
		mine, err := c.rdb.SetNX(ctx, c.name+":minting", me, turn).Result()
		if err != nil {
			return "", fmt.Errorf("notify: taking the turn to mint a token: %w", err)
		}
		if mine {
			return c.mintForAll(ctx)
		}
		timer := time.NewTimer(look)
		select {
		case <-ctx.Done():
			timer.Stop()
			return "", fmt.Errorf("notify: another worker mints the token: %w", context.Cause(ctx))
		case <-timer.C:
		}
	}
}

func (c *credential) mintForAll(ctx context.Context) (string, error) {
	defer c.rdb.Del(context.WithoutCancel(ctx), c.name+":minting")
	// Another one may have minted it between our look and our turn.
	if shared, err := c.load(ctx); err == nil && clockNow(ctx).Before(shared.usable) {
		c.held = shared
		return shared.text, nil
	}
	token, err := c.renew(ctx)
	if err != nil {
		return "", err
	}
	life := c.held.usable.Sub(c.held.minted)
	if err := c.rdb.Set(ctx, c.name, c.sealed(c.held), life).Err(); err != nil {
		return "", fmt.Errorf("notify: sharing a token: %w", err)
	}
	return token, nil
}

// errSeal is returned for what cannot be opened: it is as good as nothing.
var errSeal = errors.New("notify: a token that was sealed otherwise")

func (c *credential) sealed(t mintedToken) []byte {
	text := binary.BigEndian.AppendUint64(nil, uint64(t.minted.UnixMicro()))
	text = binary.BigEndian.AppendUint64(text, uint64(t.usable.UnixMicro()))
	nonce := make([]byte, c.seal.NonceSize())
	rand.Read(nonce) // never fails
	return c.seal.Seal(nonce, nonce, append(text, t.text...), []byte(c.name))
}

func (c *credential) load(ctx context.Context) (t mintedToken, err error) {
	sealed, err := c.rdb.Get(ctx, c.name).Bytes()
	if err != nil {
		return t, err
	}
	n := c.seal.NonceSize()
	if len(sealed) < n {
		return t, errSeal
	}
	text, err := c.seal.Open(nil, sealed[:n], sealed[n:], []byte(c.name))
	if err != nil || len(text) < 16 {
		return t, errSeal
	}
	return mintedToken{
		text:   string(text[16:]),
		minted: time.UnixMicro(int64(binary.BigEndian.Uint64(text))),
		usable: time.UnixMicro(int64(binary.BigEndian.Uint64(text[8:]))),
	}, nil
}
