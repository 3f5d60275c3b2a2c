package dashboard

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/waterclock/waterclock/internal/redistest"
)

func TestSmoke(t *testing.T) {
	d, err := New(Config{Redis: redistest.Mini(t), Queues: []string{"push"}, Token: "0123456789abcdef"})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", "push/", "push/tenants", "push/tenants?q=a&sort=waiting", "push/tenant?t=a", "push/user?t=a&u=b", "push/job", "push/job?id=a", "push/running", "push/later", "push/later?failed=1", "push/dead", "push/drops", "push/pauses", "push/policies", "push/workers", "-/login", "push/nothing", "nothing/"} {
		w := httptest.NewRecorder()
		d.ServeHTTP(w, httptest.NewRequest("GET", "/dashboard/"+path, nil))
		t.Log(path, w.Code, w.Body.Len())
		if w.Code >= http.StatusInternalServerError {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
