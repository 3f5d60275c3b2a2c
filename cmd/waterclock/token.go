package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/queue/access"
)

func (c *console) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "token", Short: "Make tokens of the HTTP API and the dashboard, and check a file of tokens",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return config.Usagef("token %s: no such command; want new or check", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(c.tokenNewCommand(), c.tokenCheckCommand())
	return cmd
}

// A tokenEntry is a token as a file has it.
type tokenEntry struct {
	Name    string         `yaml:"name" json:"name"`
	Hash    string         `yaml:"hash" json:"hash,omitempty"`
	Scopes  []access.Scope `yaml:"scopes,flow" json:"scopes"`
	Queues  []string       `yaml:"queues,flow,omitempty" json:"queues,omitempty"`
	Expires time.Time      `yaml:"expires,omitempty" json:"expires,omitzero"`
}

func (c *console) tokenNewCommand() *cobra.Command {
	var entry tokenEntry
	var scopes []string
	var length time.Duration
	file := ""
	cmd := &cobra.Command{
		Use: "new NAME", Short: "Make a token, and its entry for a file of tokens",
		Long: `new makes a token that nobody can guess, and prints it with the entry for the file of
serve --tokens-file, to which --file adds it. The entry has a hash: the token itself is printed once,
and kept nowhere. The name is that of who is to have it: it is the author of what is done with the token.`,
		Example: "  waterclock token new checkout --scopes offer --file tokens.yaml\n" +
			"  waterclock token new ann --scopes steer,offer --queues 'push,mail-*' --for 2160h",
		Args: arguments(1, 1, "the name of who is to have it"),
		RunE: func(_ *cobra.Command, args []string) error {
			if entry.Name = args[0]; len(entry.Queues) == 0 {
				entry.Queues = []string{c.queue}
			}
			asksAlone := true
			for _, s := range scopes {
				entry.Scopes = append(entry.Scopes, access.Scope(s))
				asksAlone = asksAlone && !access.Scope(s).OfQueues()
			}
			if asksAlone {
				entry.Queues = nil
			}
			if length > 0 {
				entry.Expires = time.Now().Add(length).UTC().Truncate(time.Second)
			}
			token, hash := access.New()
			entry.Hash = hash
			text, err := yaml.Marshal(map[string][]tokenEntry{"tokens": {entry}})
			if err == nil {
				_, err = access.Parse("token new", text)
			}
			if err != nil {
				_, wrong, _ := strings.Cut(err.Error(), "tokens[0].")
				return config.Usagef("token new: %s", wrong)
			}
			if file != "" {
				if err := addToken(file, entry); err != nil {
					return err
				}
			}
			switch {
			case c.json:
				return c.show(struct {
					Token string `json:"token"`
					tokenEntry
				}{token, entry}, nil)
			case file != "":
				fmt.Fprintln(c.out, token)
				return nil
			}
			fmt.Fprintf(c.out, "%s\n\nThis is the token: it is shown once. Its entry for the file of tokens, which serve reads within a second:\n\n%s", token, text)
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&scopes, "scopes", []string{string(access.Read)}, "what it allows: offer, read, steer, decide")
	flags.StringSliceVar(&entry.Queues, "queues", nil, "in which queues, exact or with * (default: that of --queue)")
	flags.StringVar(&file, "file", "", "a file of tokens, which the entry is added to; the token alone is printed")
	flags.DurationVar(&length, "for", 0, "when it expires; 0 for never")
	return cmd
}

// addToken adds an entry to a file of tokens, or makes the file. What else is in it stays as it is.
func addToken(name string, entry tokenEntry) error {
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var known []access.Token
	if err == nil {
		if known, err = access.Parse(name, text); err != nil {
			return err
		}
	}
	if len(known) == 0 {
		text = []byte("tokens:\n")
	}
	indent := "  "
	if found := listItem.FindSubmatch(text); found != nil {
		indent = string(found[1])
	}
	item, err := yaml.Marshal(entry)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(string(item), "\n"), "\n")
	all := strings.TrimRight(string(text), "\n") + "\n" + indent + "- " + strings.Join(lines, "\n"+indent+"  ") + "\n"
	if now, err := access.Parse(name, []byte(all)); err != nil || len(now) != len(known)+1 {
		return fmt.Errorf("%s: an entry cannot be added to a list of this form; without --file it is printed, to be put there by hand", name)
	}
	if err := os.WriteFile(name+".new", []byte(all), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name) // in one step: serve reads it at any time
}

// listItem finds the first item of a list, and how far it is indented.
var listItem = regexp.MustCompile(`(?m)^( *)- `)

func (c *console) tokenCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check FILE", Short: "Say whether a file of tokens is valid, and what its tokens allow",
		Args: arguments(1, 1, "a file of tokens"),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			tokens, err := access.Parse(args[0], text)
			if err != nil {
				return err
			}
			entries := make([]tokenEntry, len(tokens))
			for i, t := range tokens {
				entries[i] = tokenEntry{Name: t.Name, Scopes: t.Scopes, Queues: t.Queues, Expires: t.Expires}
			}
			return c.show(entries, func(t *table) {
				t.row("NAME", "SCOPES", "QUEUES", "EXPIRES")
				for _, e := range entries {
					expires := "never"
					if !e.Expires.IsZero() {
						if expires = e.Expires.UTC().Format(time.RFC3339); !e.Expires.After(time.Now()) {
							expires += ", expired"
						}
					}
					t.row(e.Name, strings.Trim(fmt.Sprint(e.Scopes), "[]"), strings.Join(e.Queues, " "), expires)
				}
			})
		},
	}
}
