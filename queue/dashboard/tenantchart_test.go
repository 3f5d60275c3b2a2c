package dashboard

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
)

// The tenants with most waiting have charts, on their pages and small ones in the list; of the
// others the pages show none.
func TestTenantsHaveCharts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, redistest.Mini(t), "")
		v.limit(limits)
		v.enqueue(jobs("school", "teacher", 20)...)
		for range 20 * 60 {
			_, err := v.inspector().Record(t.Context())
			v.must(err)
			time.Sleep(time.Second)
		}
		v.enqueue(jobs("newcomer", "ann", 1)...)
		v.sees("tenants", `class="spark"`, `<path class="l1 line" d="M`, "newcomer")
		v.sees("tenant?t=school", "Starts and offers a second", "Waiting jobs", "−3 h", "<b>20</b>")
		v.sees("tenant?t=school&span=7+d", "Waiting jobs", "−7 d")
		if strings.Contains(v.sees("tenant?t=newcomer", "newcomer"), "Waiting jobs") {
			t.Error("a tenant of which nothing is kept has charts")
		}
	})
}
