package notify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// A credential is a short-lived token that a sender shows to its provider. One attempt
// at a time renews it, and the others wait for the result. With Redis all workers share
// it: Apple refuses keys that mint more than one token in twenty minutes, and Google's
// costs a request.
type credential struct {
	hidden
	mint    mintFunc
	shared  *sharedToken  // nil: each process has its own
	timeout time.Duration // bounds the wait for a token

	// young is the age below which a refused token is not replaced: a new one would be
	// refused too.
	young time.Duration

	turn   chan struct{} // holds one: whoever reads or changes the fields below
	held   mintedToken
	failed mintFailure
}

// A mintFunc makes a new token and says how long it may be used.
type mintFunc func(ctx context.Context) (token string, life time.Duration, err error)

type mintedToken struct {
	text           string
	minted, usable time.Time
}

// A mintFailure answers those who ask soon after a failure.
type mintFailure struct {
	err   error
	until time.Time
}

const (
	failureWait = 5 * time.Second       // until the next try to obtain a token
	shareTurn   = 20 * time.Second      // of one worker to mint for all; longer than a request takes
	shareLook   = 50 * time.Millisecond // how often the others look
)

func newCredential(mint mintFunc, timeout time.Duration) *credential {
	return &credential{mint: mint, timeout: timeout, turn: make(chan struct{}, 1)}
}

// get returns a token to use now. It takes at most the credential's timeout.
func (c *credential) get(ctx context.Context) (string, error) {
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if err := c.lock(bounded); err != nil {
		return "", err
	}
	defer c.unlock()
	now := clockNow(ctx)
	switch {
	case now.Before(c.held.usable):
		return c.held.text, nil
	case now.Before(c.failed.until):
		return "", c.failed.err
	}
	err := c.renew(bounded)
	if err != nil && ctx.Err() == nil { // an attempt that was cancelled says nothing to the others
		c.failed = mintFailure{err, clockNow(ctx).Add(failureWait)}
	}
	return c.held.text, err
}

// refused notes that the provider did not take a token. It returns true if a new one will
// be tried, and false if the token was young: then something else is wrong.
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
	if c.shared != nil {
		c.shared.drop(ctx, token)
	}
	return true
}

func (c *credential) lock(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("notify: waiting for a token: %w", ctx.Err())
	}
}

func (c *credential) unlock() { <-c.turn }

// renew replaces the held token, by the shared one if there is one that may be used.
func (c *credential) renew(ctx context.Context) error {
	c.held = mintedToken{}
	if c.shared == nil {
		return c.mintNew(ctx)
	}
	for {
		token, err := c.shared.load(ctx)
		if err != nil {
			return err
		}
		if clockNow(ctx).Before(token.usable) {
			c.held = token
			return nil
		}
		release, mine, err := c.shared.lead(ctx)
		if err != nil {
			return err
		}
		if mine {
			defer release()
			return c.mintForAll(ctx)
		}
		if err := waitFor(ctx, shareLook); err != nil {
			return fmt.Errorf("notify: another worker obtains the token: %w", err)
		}
	}
}

func (c *credential) mintNew(ctx context.Context) error {
	text, life, err := c.mint(ctx)
	if err != nil {
		return err
	}
	now := clockNow(ctx)
	c.held = mintedToken{text, now, now.Add(life)}
	return nil
}

func (c *credential) mintForAll(ctx context.Context) error {
	// Another worker may have shared a token between our look and our turn.
	token, err := c.shared.load(ctx)
	if err == nil && clockNow(ctx).Before(token.usable) {
		c.held = token
		return nil
	}
	if err := c.mintNew(ctx); err != nil {
		return err
	}
	if err := c.shared.store(ctx, c.held); err != nil {
		c.held = mintedToken{} // a token that the others do not know makes two
		return err
	}
	return nil
}

// waitFor waits, or returns why the context ended before.
func waitFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// share lets all workers that have the same secret use one token.
func (c *credential) share(rdb redis.UniversalClient, kind string, secret []byte) error {
	if rdb == nil {
		return nil
	}
	if len(secret) == 0 {
		return errors.New("notify: a token without a secret cannot be shared")
	}
	shared, err := newSharedToken(rdb, kind, secret)
	c.shared = shared
	return err
}
