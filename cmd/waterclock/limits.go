package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/config"
)

func (c *console) limitsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "limits", Short: "Limits by name: how full their keys are, and what waits for them",
		Args: arguments(0, 0, "show"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.limitsShow())
	return cmd
}

// noLimit says which limits by name there are, to somebody who has named another one.
func noLimit(name string, there []string) error {
	if len(there) == 0 {
		return config.Usagef("there is no limit %s: the policies have no limits by name", name)
	}
	return config.Usagef("there is no limit %s; there are %s", name, strings.Join(there, ", "))
}
