// Command worker delivers jobs at their slots. See the usage.
package main

import (
	"os"

	"github.com/waterclock/waterclock/internal/config"
)

func main() {
	os.Exit(config.Main("worker", run))
}
