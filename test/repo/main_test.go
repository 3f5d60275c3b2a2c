package repo

import (
	"fmt"
	"os"
	"testing"
)

// builtDir is the variable with the directory of the built commands.
const builtDir = "WATERCLOCK_TEST_COMMANDS"

// TestMain lets the tests run where the repository begins: all their paths are of there.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	err := os.Chdir("../..")
	if err == nil {
		_, err = os.Stat("go.mod")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "waterclock-commands-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	os.Setenv(builtDir, dir)
	return m.Run()
}
