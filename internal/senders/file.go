package senders

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/waterclock/waterclock/notify"
)

// An Entry is one sender of a configuration file.
type Entry struct {
	Name    string // the sender's
	App     string // what targets say, where there are several of a name
	Options Options
}

// configFile is a configuration file: the settings of a sender have the flags' names.
type configFile struct {
	Providers []map[string]yaml.Node `yaml:"providers"`
}

// ReadFile reads a configuration file with several senders. Relative names of files in it
// are relative to it.
func ReadFile(name string) ([]Entry, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	var file configFile
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("--config: %s: %w", name, err)
	}
	if len(file.Providers) == 0 {
		return nil, fmt.Errorf("--config: %s: no providers; want a list such as providers: [{sender: fcm, secret-file: account.json}]", name)
	}
	var entries []Entry
	for i, settings := range file.Providers {
		entry, err := readEntry(settings, filepath.Dir(name))
		if err != nil {
			return nil, fmt.Errorf("--config: %s: provider %d: %w", name, i+1, err)
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

func readEntry(settings map[string]yaml.Node, dir string) (e Entry, err error) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	e.Options.AddFlags(flags)
	flags.StringVar(&e.Name, "sender", "", "")
	flags.StringVar(&e.App, "app", "", "")
	flags.StringVar(&e.Options.secretVariable, "secret-variable", "", "")
	for key, node := range settings {
		var values []string
		if node.Kind == yaml.SequenceNode {
			err = node.Decode(&values)
		} else {
			values = []string{node.Value}
		}
		if flags.Lookup(key) == nil {
			return e, fmt.Errorf("line %d: unknown key %q; want sender, app, secret-variable, or a flag of the sender without its dashes", node.Line, key)
		}
		for _, value := range values {
			if err == nil {
				err = flags.Set(key, value)
			}
		}
		if err != nil {
			return e, fmt.Errorf("line %d: %s: %w", node.Line, key, err)
		}
	}
	if !slices.Contains(Names(), e.Name) {
		return e, fmt.Errorf("sender %q; want %s", e.Name, strings.Join(Names(), ", "))
	}
	for _, file := range []*string{&e.Options.secretFile, &e.Options.ca} {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(dir, *file)
		}
	}
	return e, e.Options.Check(e.Name, flags.Changed)
}

// An All is the senders of a configuration file, as one.
type All struct {
	*notify.Providers
	Each []Sender
}

// Close closes all senders.
func (a *All) Close() (err error) {
	for _, s := range a.Each {
		err = errors.Join(err, s.Close())
	}
	return err
}

// OpenAll opens the senders of a configuration file.
func OpenAll(entries []Entry, rdb redis.UniversalClient) (*All, error) {
	all := &All{}
	var list []notify.Provider
	for i, e := range entries {
		s, err := e.Options.Open(e.Name, rdb)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("provider %d: %w", i+1, err), all.Close())
		}
		all.Each = append(all.Each, s)
		list = append(list, notify.Provider{Name: e.Name, App: e.App, Sender: s})
	}
	var err error
	if all.Providers, err = notify.NewProviders(list...); err != nil {
		return nil, errors.Join(err, all.Close())
	}
	return all, nil
}
