package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/waterclock/waterclock/internal/jobline"
)

// lines reads lines in constant memory, however long they are.
type lines struct {
	r       *bufio.Reader
	number  int   // of the line that next returned
	bytes   int64 // read so far
	current []byte
}

var errTooLong = errors.New("the line is too long")

func newLines(r io.Reader) *lines {
	return &lines{r: bufio.NewReaderSize(r, 64<<10)}
}

// next returns the next line without its end, valid until the next call. After
// errTooLong, which skips the line, it can go on. The last error is io.EOF.
func (l *lines) next() ([]byte, error) {
	l.current = l.current[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		l.bytes += int64(len(part))
		if len(l.current) <= jobline.MaxLine {
			l.current = append(l.current, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(l.current) == 0, err != nil && !errors.Is(err, io.EOF):
			return nil, err
		}
		break
	}
	l.number++
	line := bytes.TrimRight(l.current, "\r\n")
	if l.number == 1 {
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	if len(line) > jobline.MaxLine {
		return nil, errTooLong
	}
	return line, nil
}

// ready reports whether the next line is there already, so that it costs no waiting.
func (l *lines) ready() bool {
	buffered, _ := l.r.Peek(l.r.Buffered())
	return bytes.IndexByte(buffered, '\n') >= 0
}
