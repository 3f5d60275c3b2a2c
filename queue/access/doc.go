// Package access says who may do what with queues over HTTP: with the API of package api and at the pages of package
// dashboard. Who presents a token may do what its scopes allow, in the queues that it names. Tokens are in a file, which
// holds their hashes:
//
//	tokens:
//	  - name: checkout           # who that is: the author of what is done with it
//	    hash: sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//	    scopes: [offer]
//	    queues: [push, mail-*]   # exact, or with * for any text
//	    expires: 2027-01-01T00:00:00Z
//
// The file is read again when it has changed, so that tokens are replaced without a restart: two tokens may have one name, the
// old one and the new one.
//
//	tokens, err := access.Open(access.Config{File: "tokens.yaml"})
//	…
//	go tokens.Run(ctx) // reads the file again
//	handler, err := api.New(api.Config{Redis: rdb, Tokens: tokens})
//
// docs/api.md describes the file and the scopes.
package access
