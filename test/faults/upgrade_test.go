package faults

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// olderBuild builds the worker of testdata/older.tar.gz: this module as it was on 23
// November 2026, without tests, and worker_test.go as a program (testdata/archive.sh). Its keys have the schema
// of today. A new schema needs no archive: its workers refuse those of another one.
func olderBuild(t *testing.T) (program string) {
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	if err := unpack("testdata/older.tar.gz", source); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "worker")
	build := exec.Command("go", "build", "-o", program, "./cmd/scribe")
	build.Dir, build.Env = source, append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the older worker: %v\n%s", err, out)
	}
	return program
}

// unpack writes the files of an archive into a directory.
func unpack(archive, dir string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	for files := tar.NewReader(plain); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		name := filepath.Join(dir, filepath.Clean("/"+header.Name))
		text, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			return err
		}
	}
}

// upgraded replaces the workers one by one by such of another build, to the newer one and
// back, the leader first or last. Some are killed in the middle of it.
func upgraded(t *testing.T) *scene {
	older := olderBuild(t)
	_, at := plain(t)
	at.first = older
	s := newScene(t, at)
	s.during(func() {
		for i := range 4 * s.rounds {
			s.program = ""
			if i%2 == 1 {
				s.program = older
			}
			for range len(s.members) {
				s.pause(s.between(200*time.Millisecond, 800*time.Millisecond))
				victim := s.longestServing(s.rng.IntN(2) == 0)
				if s.rng.IntN(3) == 0 {
					s.harm = append(s.harm, harm{worker: victim.name, at: s.kill(victim)})
				} else {
					now := time.Now()
					s.stop(victim)
					s.harm = append(s.harm, harm{at: now, healed: now})
				}
				s.hire()
				s.crew.wait()
			}
		}
	})
	return s
}

// longestServing returns the worker that was hired first, or, if asked for, the leader, if
// it is one of the build that is to be replaced.
func (s *scene) longestServing(leader bool) *member {
	if m := s.leader(); leader && m != nil && m.program != s.program {
		return m
	}
	for _, m := range s.members {
		if m.program != s.program {
			return m
		}
	}
	return s.members[0]
}
