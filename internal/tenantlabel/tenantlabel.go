// Package tenantlabel bounds how many tenants have metrics of their own. There may be any number of tenants, and a
// series in Prometheus costs memory for hours: so no metric has a label for tenants unless somebody asks for it, and
// for how many.
package tenantlabel

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// Most is how many tenants may have metrics of their own.
const Most = 100

// Check says what is wrong with a list of tenants that are to have metrics, beside so many more.
func Check(names []string, more int) error {
	for i, name := range names {
		switch {
		case name == "":
			return fmt.Errorf("tenant %d of %d is empty; want the name of a tenant", i+1, len(names))
		case !utf8.ValidString(name):
			return fmt.Errorf("tenant %q is not UTF-8; a label of a metric has to be", name)
		case slices.Contains(names[:i], name):
			return fmt.Errorf("tenant %q is named twice", name)
		}
	}
	if more < 0 {
		return fmt.Errorf("%d of the busiest tenants; want 0 or more", more)
	}
	if n := len(names) + more; n > Most {
		return fmt.Errorf("%d tenants; want at most %d, since each has series of its own", n, Most)
	}
	return nil
}
