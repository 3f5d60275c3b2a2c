package store

import (
	"errors"
	"fmt"
	"strings"
)

// ErrSchema is returned where the keys were written by a program of another schema. Nothing was changed.
var ErrSchema = errors.New("queue: the keys in Redis are of another schema")

// checkSchema returns an error for keys of another schema. In a queue that is new the field of meta is not there, and
// schema is "": any program may use it.
func checkSchema(schema string) error {
	if schema == "" || schema == Schema {
		return nil
	}
	return fmt.Errorf("%w: %s; this program reads %s: drain the queue with the version that wrote it, see the changelog",
		ErrSchema, schema, Schema)
}

// A BrokenKeyError says that the key of the queue itself that it names has another type than the wanted one. Nothing
// was changed, and nothing starts until the key is repaired.
type BrokenKeyError struct{ Key, Want string }

// ErrBrokenKey is what a [BrokenKeyError] is.
var ErrBrokenKey = errors.New("queue: a key in Redis has another type")

func (e *BrokenKeyError) Unwrap() error { return ErrBrokenKey }

func (e *BrokenKeyError) Error() string {
	return fmt.Sprintf("queue: the key %s in Redis is not a %s: nothing starts until it is repaired; run waterclock doctor --repair", e.Key, e.Want)
}

// asBroken returns an error that names a key of the queue, if err says that a key has another type; otherwise err
// itself.
func asBroken(err error, key, want string) error {
	if err != nil && wrongType(err) {
		return &BrokenKeyError{key, want}
	}
	return err
}

// wrongType reports whether an error is Redis's answer about a key of another type. What follows depends on whose
// the key is, see types.go.
func wrongType(err error) bool { return strings.HasPrefix(err.Error(), "WRONGTYPE") }
