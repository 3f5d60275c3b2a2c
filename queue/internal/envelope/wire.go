package envelope

import (
	"encoding/binary"
	"maps"
	"slices"
)

// appendNumber writes a number as an option, unless it is the usual one.
func appendNumber(b []byte, tag byte, n, usual uint64) []byte {
	if n == usual {
		return b
	}
	var number [binary.MaxVarintLen64]byte
	return appendOption(b, tag, number[:binary.PutUvarint(number[:], n)])
}

// appendText writes a text as an option, unless it is "".
func appendText(b []byte, tag byte, text string) []byte {
	if text == "" {
		return b
	}
	return appendOption(b, tag, []byte(text))
}

// appendTexts writes an option for each name, with the name and its text, in the order of the names.
func appendTexts(b []byte, tag byte, texts map[string]string) []byte {
	for _, name := range names(texts) {
		b = appendOption(b, tag, append(appendString(nil, name), texts[name]...))
	}
	return b
}

// names returns the keys of a map in their order. Most jobs have none of them, and cost nothing here.
func names[V any](of map[string]V) []string {
	if len(of) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(of))
}

func appendOption(b []byte, tag byte, value []byte) []byte {
	b = binary.AppendUvarint(append(b, tag), uint64(len(value)))
	return append(b, value...)
}

// appendString writes a text after its length.
func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// reader takes values from the front of a text; after an error it returns zeros. So several values may be read before
// the error is looked at.
type reader struct {
	rest string
	err  error
}

func (r *reader) byte() byte {
	if r.rest == "" {
		r.err = ErrMalformed
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

// number reads a varint: seven bits a byte, the lowest first. One that does not end within 64 bits is malformed.
func (r *reader) number() (n uint64) {
	for shift := 0; shift < 64; shift += 7 {
		b := r.byte()
		if r.err != nil {
			return 0
		}
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
	r.err = ErrMalformed
	return 0
}

// text reads a text after its length.
func (r *reader) text() string {
	n := r.number()
	if r.err != nil || n > uint64(len(r.rest)) {
		r.err = ErrMalformed
		return ""
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}
