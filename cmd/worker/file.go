package main

import (
	"errors"
	"os"
	"sync"
)

// A file is appended to, by several workers if need be, and opened again by its name when
// somebody has moved it away.
type file struct {
	mu   sync.Mutex
	name string
	mode os.FileMode
	file *os.File
}

func openFile(name string, mode os.FileMode) (*file, error) {
	f := &file{name: name, mode: mode}
	return f, f.reopen()
}

// reopen opens the file by its name. If that fails the old one stays in use.
func (f *file) reopen() error {
	opened, err := os.OpenFile(f.name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, f.mode)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.file
	if f.file = opened; old != nil {
		return old.Close()
	}
	return nil
}

func (f *file) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Write(p)
}

func (f *file) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Close()
}

// A sink is what a worker writes beside its log, and how to end that.
type sink struct {
	files []*file
	ends  []func() error
}

func (s *sink) open(name string, mode os.FileMode) (*file, error) {
	f, err := openFile(name, mode)
	if err == nil {
		s.files = append(s.files, f)
		s.ends = append(s.ends, f.Close)
	}
	return f, err
}

// reopen opens all files again.
func (s *sink) reopen() (err error) {
	for _, f := range s.files {
		err = errors.Join(err, f.reopen())
	}
	return err
}

func (s *sink) close() (err error) {
	for _, end := range s.ends {
		err = errors.Join(err, end())
	}
	return err
}
