package redistest

import (
	"flag"
	"runtime"
	"strconv"
	"testing"
)

// RunWaiting runs the tests of a package that wait for a Redis much of the time: so many at a time for each processor, unless -parallel
// says how many.
func RunWaiting(m *testing.M, perProcessor int) int {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		_ = flag.Set("test.parallel", strconv.Itoa(perProcessor*runtime.GOMAXPROCS(0))) // a number is valid
	}
	return m.Run()
}
