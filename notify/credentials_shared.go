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

// A sharedToken is a token in Redis. It is sealed with a key derived from the secret that
// mints it: who can read Redis cannot send.
type sharedToken struct {
	rdb  redis.UniversalClient
	key  string
	seal cipher.AEAD
}

// newSharedToken returns the token of that kind whose key is named after the secret.
func newSharedToken(rdb redis.UniversalClient, kind string, secret []byte) (*sharedToken, error) {
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
	return &sharedToken{rdb, "wc:{notify}:" + kind + ":" + hex.EncodeToString(name), seal}, nil
}

// load returns the token, the zero token if Redis has none that can be decrypted.
func (s *sharedToken) load(ctx context.Context) (mintedToken, error) {
	sealed, err := s.rdb.Get(ctx, s.key).Bytes()
	if errors.Is(err, redis.Nil) {
		return mintedToken{}, nil
	}
	if err != nil {
		return mintedToken{}, fmt.Errorf("notify: reading the shared token: %w", err)
	}
	return s.opened(sealed), nil
}

func (s *sharedToken) store(ctx context.Context, t mintedToken) error {
	if err := s.rdb.Set(ctx, s.key, s.sealed(t), t.usable.Sub(t.minted)).Err(); err != nil {
		return fmt.Errorf("notify: sharing a token: %w", err)
	}
	return nil
}

// drop removes a token that was refused, and leaves one that has replaced it.
func (s *sharedToken) drop(ctx context.Context, token string) {
	_ = s.rdb.Watch(ctx, func(tx *redis.Tx) error {
		sealed, err := tx.Get(ctx, s.key).Bytes()
		if err != nil || s.opened(sealed).text != token {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Del(ctx, s.key).Err() })
		return err
	}, s.key) // if it fails the token is refused once more
}

// lead takes the turn to mint for all, if nobody has it. A worker that dies loses it
// after shareTurn.
func (s *sharedToken) lead(ctx context.Context) (release func(), mine bool, err error) {
	taken := time.Now()
	mine, err = s.rdb.SetNX(ctx, s.key+":minting", 1, shareTurn).Result()
	if err != nil {
		return nil, false, fmt.Errorf("notify: taking the turn to obtain a token: %w", err)
	}
	return func() {
		if time.Since(taken) < shareTurn { // or it may be another's
			s.rdb.Del(context.WithoutCancel(ctx), s.key+":minting")
		}
	}, mine, nil
}

func (s *sharedToken) sealed(t mintedToken) []byte {
	text := binary.BigEndian.AppendUint64(nil, uint64(t.minted.UnixMicro()))
	text = binary.BigEndian.AppendUint64(text, uint64(t.usable.UnixMicro()))
	nonce := make([]byte, s.seal.NonceSize())
	rand.Read(nonce) // never fails
	return s.seal.Seal(nonce, nonce, append(text, t.text...), []byte(s.key))
}

// opened returns the zero token for what was sealed otherwise: it is replaced.
func (s *sharedToken) opened(sealed []byte) (t mintedToken) {
	n := s.seal.NonceSize()
	if len(sealed) < n {
		return t
	}
	text, err := s.seal.Open(nil, sealed[:n], sealed[n:], []byte(s.key))
	if err != nil || len(text) < 16 {
		return t
	}
	return mintedToken{
		text:   string(text[16:]),
		minted: time.UnixMicro(int64(binary.BigEndian.Uint64(text))),
		usable: time.UnixMicro(int64(binary.BigEndian.Uint64(text[8:]))),
	}
}
