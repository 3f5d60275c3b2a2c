package notify

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
)

const (
	recordSize = 4096
	saltSize   = 16
)

// encrypt encrypts a message for a subscription, with a new key and salt each time, and
// pads its length to a multiple of step.
func encrypt(to Target, plain []byte, step int) ([]byte, error) {
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("notify: webpush: %w", err)
	}
	salt := make([]byte, saltSize)
	rand.Read(salt) // never fails
	if len(plain) > maxWebPlain {
		return nil, fmt.Errorf("%w: the message has %d bytes; at most %d for browsers", errLocal, len(plain), maxWebPlain)
	}
	padded := min(maxWebPlain, (len(plain)+step-1)/step*step)
	return encryptWith(to, plain, padded-len(plain), key, salt)
}

// encryptWith is RFC 8291 with the content coding aes128gcm of RFC 8188, in one record:
// a header of salt, record size and our public key, then the sealed message.
func encryptWith(to Target, plain []byte, padding int, key *ecdh.PrivateKey, salt []byte) ([]byte, error) {
	theirs, err := decodeB64(to.P256dh)
	if err != nil {
		return nil, errKeys
	}
	secret, err := decodeB64(to.Auth)
	if err != nil || len(secret) != 16 {
		return nil, errKeys
	}
	public, err := ecdh.P256().NewPublicKey(theirs)
	if err != nil {
		return nil, errKeys
	}
	shared, err := key.ECDH(public)
	if err != nil {
		return nil, errKeys
	}
	ours := key.PublicKey().Bytes()
	info := "WebPush: info\x00" + string(theirs) + string(ours)
	input, err := hkdf.Key(sha256.New, shared, secret, info, 32)
	if err != nil {
		return nil, err
	}
	content, err := hkdf.Key(sha256.New, input, salt, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Key(sha256.New, input, salt, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(content)
	if err != nil {
		return nil, err
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	body := append([]byte(nil), salt...)
	body = binary.BigEndian.AppendUint32(body, recordSize)
	body = append(append(body, byte(len(ours))), ours...)
	record := append(append([]byte(nil), plain...), 2) // the mark of the last record
	record = append(record, make([]byte, padding)...)
	return seal.Seal(body, nonce, record, nil), nil
}

// errKeys says nothing about the keys, which are secrets.
var errKeys = fmt.Errorf("%w: invalid keys of the push subscription", errLocal)

// decodeB64 reads base64 as browsers and libraries write it: URL-safe or not, padded or not.
func decodeB64(text string) ([]byte, error) {
	text = strings.NewReplacer("+", "-", "/", "_").Replace(strings.TrimRight(text, "="))
	return b64.DecodeString(text)
}
