// Command generate writes the files of deploy that are made from others. Run it by go generate, in deploy/check.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/waterclock/waterclock/deploy/check/chart"
)

func main() {
	if err := generate(".."); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func generate(deploy string) error {
	files, err := chart.Files(deploy)
	if err != nil {
		return err
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(deploy, file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
