// Command producer offers jobs that it reads as lines of JSON. See the usage.
package main

import (
	"os"

	"github.com/waterclock/waterclock/internal/config"
)

func main() {
	os.Exit(config.Main("producer", run))
}
