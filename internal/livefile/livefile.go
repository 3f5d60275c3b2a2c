// Package livefile reads a file again when it has changed. What cannot be used is refused as a whole: what was read before stays in
// force.
package livefile

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
)

// A File is a file that is read again. It is not safe for concurrent use: what Use does with the text has to be.
type File struct {
	Name   string
	What   string                  // is in it, for the log: "tokens"
	Use    func(text []byte) error // puts it in force, or says why not
	Logger *slog.Logger            // nil is slog.Default()

	text    []byte // in force
	refused string // why the file was refused last time, not to say it every time
}

// Load reads the file and uses it, for the first time.
func (f *File) Load() error {
	text, err := f.read()
	if err == nil {
		err = f.Use(text)
	}
	f.text = text
	return err
}

// looks is how often Run looks at the file.
const looks = time.Second

// Run reads the file each second until ctx ends, and uses it when it has changed; it returns nil. It reads all of it: a change within
// one tick of the file system's clock, or behind a symbolic link, would not be seen otherwise.
func (f *File) Run(ctx context.Context) error {
	tick := time.NewTicker(looks)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			f.reload()
		}
	}
}

func (f *File) reload() {
	log := cmp.Or(f.Logger, slog.Default())
	text, err := f.read()
	if err == nil && f.refused == "" && bytes.Equal(text, f.text) {
		return
	}
	if err == nil {
		err = f.Use(text)
	}
	if err != nil {
		if f.refused != err.Error() {
			log.Error("refused the "+f.What+"; the old ones stay", "err", err)
		}
		f.refused = err.Error()
		return
	}
	f.text, f.refused = text, ""
	log.Info("new "+f.What, "file", f.Name)
}

// most is how many bytes a file has at most.
const most = 4 << 20

func (f *File) read() ([]byte, error) {
	file, err := os.Open(f.Name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && len(text) > most {
		err = fmt.Errorf("%s:1: the file has more than %d bytes", f.Name, most)
	}
	return text, err
}
