package human

import (
	"fmt"

	"github.com/waterclock/waterclock/queue"
)

// Why says why the next job of a user waits.
func Why(e queue.Explanation, tenant, user string) string {
	who := tenant + " / " + user
	if e.Waiting == 0 {
		return fmt.Sprintf("Nothing of %s waits; of the tenant: %s.", who, Jobs(e.TenantWaiting))
	}
	waits := fmt.Sprintf("Waiting: %s of %s, %s of the tenant", Jobs(e.Waiting), who, Thousands(e.TenantWaiting))
	b := e.Binding
	switch {
	case b == nil && e.Start.IsZero():
		return waits + "; a limit that is reached keeps the next one."
	case b == nil:
		return waits + ". The next one may start now, when its turn comes and a place is free."
	case b.Running > 0:
		return fmt.Sprintf("%s. The next one waits for the %s's limit %s: %d run, the oldest for %s.", waits, b.Scope, b.Rule, b.Running, Span(e.Now.Sub(b.Oldest)))
	case b.Rule == "paused":
		return fmt.Sprintf("%s. The %s is paused; the next one starts %s.", waits, b.Scope, From(e.Now, e.Start))
	}
	return fmt.Sprintf("%s. The next one starts %s: it waits for the %s's rule %s.", waits, From(e.Now, e.Start), b.Scope, b.Rule)
}
