// Command waterclock is the operator's: it shows a queue, says why a job waits, and steers.
// See the usage, and docs/operations.md.
package main

import (
	"os"

	"github.com/waterclock/waterclock/internal/config"
)

func main() {
	os.Exit(config.Main("waterclock", run))
}
