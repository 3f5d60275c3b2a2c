package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/queue"
)

// usageError is an error of whoever called the command.
type usageError string

func (e usageError) Error() string { return string(e) }

// Usagef returns an error that says that the command was called the wrong way.
func Usagef(format string, args ...any) error {
	return usageError(fmt.Sprintf(format, args...))
}

// ParseFlags parses the arguments, which are flags only. It reports true if the caller
// asked for help or the version and got it, on stdout. A flag that is not given is taken from
// the environment, if it is there: --log-file is WATERCLOCK_LOG_FILE.
func ParseFlags(flags *pflag.FlagSet, args []string, usage string, stdout io.Writer) (helped bool, err error) {
	flags.Usage = func() {}
	version := flags.Bool("version", false, "")
	flags.SetOutput(io.Discard)
	switch err := flags.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		_, err := io.WriteString(stdout, usage)
		return true, err
	case err != nil:
		return false, FlagError(err)
	}
	if *version {
		_, err := fmt.Fprintln(stdout, Version())
		return true, err
	}
	if flags.NArg() > 0 {
		return false, Usagef("unexpected argument %q: everything is said with flags", flags.Arg(0))
	}
	return false, FromEnvironment(flags)
}

// FlagError says of an error of pflag what would be right.
func FlagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return Usagef("%v", err)
	}
	flag := invalid.GetFlag()
	return Usagef("--%s %q: want %s", flag.Name, invalid.GetValue(), wanted(flag.Value.Type()))
}

// FromEnvironment sets the flags that were not given from variables of their names: --log-file
// from WATERCLOCK_LOG_FILE.
func FromEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		name := "WATERCLOCK_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := os.LookupEnv(name)
		if !ok || f.Changed || f.Name == "help" || f.Name == "version" || err != nil {
			return
		}
		if flags.Set(f.Name, value) != nil {
			err = Usagef("%s %q: want %s", name, value, wanted(f.Value.Type()))
		}
	})
	return err
}

// wanted describes the values of a type of flag.
func wanted(kind string) string {
	switch kind {
	case "int":
		return "a whole number"
	case "float64":
		return "a number"
	case "bool":
		return "true or false"
	case "duration":
		return "a time such as 10m"
	}
	return "a " + kind
}

// CheckQueue refuses a name that no queue can have.
func CheckQueue(name string) error {
	if _, err := queue.NewClient(nil, name); err != nil {
		return Usagef("--queue %q: want 1 to 128 bytes without braces, colons or white space", name)
	}
	return nil
}
