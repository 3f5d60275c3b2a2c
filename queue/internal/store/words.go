package store

import (
	"strconv"
	"strings"
)

// Pack writes words into one text, whatever bytes they hold: each word after its length and a space, as in
// "3 abc0 2 de". So packed texts that follow each other are one packed text: a commit that tells a worker
// several things appends them.
func Pack(words ...string) string { return string(appendWords(nil, words)) }

// appendWords adds words, each after its length and a space.
func appendWords(b []byte, words []string) []byte {
	for _, word := range words {
		b = strconv.AppendInt(b, int64(len(word)), 10)
		b = append(append(b, ' '), word...)
	}
	return b
}

// Words reads what Pack wrote. Of a malformed text it returns the words before the first malformed one: callers look
// at how many there are.
func Words(message string) (words []string) {
	for message != "" {
		length, rest, found := strings.Cut(message, " ")
		n, err := strconv.Atoi(length)
		if !found || err != nil || n < 0 || n > len(rest) {
			return words
		}
		words = append(words, rest[:n])
		message = rest[n:]
	}
	return words
}
