package store

import (
	"errors"
	"fmt"
	"strings"
)

// ErrSchema is returned where the keys were written by a program of another schema.
var ErrSchema = errors.New("queue: the keys in Redis are of another schema")

// checkSchema returns an error for keys of another schema; "" are none.
func checkSchema(schema string) error {
	if schema == "" || schema == Schema {
		return nil
	}
	return fmt.Errorf("%w: %s; this program reads %s: drain the queue with the version that wrote it, see the changelog",
		ErrSchema, schema, Schema)
}

// A BrokenKeyError says that a key of the queue itself has another type than it should. The
// queue stands still until it is repaired, and nothing was changed.
type BrokenKeyError struct{ Key, Want string }

// ErrBrokenKey is what a [BrokenKeyError] is.
var ErrBrokenKey = errors.New("queue: a key in Redis has another type")

func (e *BrokenKeyError) Unwrap() error { return ErrBrokenKey }

func (e *BrokenKeyError) Error() string {
	return fmt.Sprintf("queue: the key %s in Redis is not a %s: nothing starts until it is repaired; run waterclock doctor --repair", e.Key, e.Want)
}

// asBroken says which key of the queue has another type, if an error is about that.
func asBroken(err error, key, want string) error {
	if err != nil && wrongType(err) {
		return &BrokenKeyError{key, want}
	}
	return err
}

// wrongType tells the answer of a key that holds something else. It is one tenant's
// trouble, and counts as nothing.
func wrongType(err error) bool { return strings.HasPrefix(err.Error(), "WRONGTYPE") }
