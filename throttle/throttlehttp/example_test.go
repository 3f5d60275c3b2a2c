package throttlehttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/waterclock/waterclock/throttle"
	"github.com/waterclock/waterclock/throttle/throttlehttp"
)

func ExampleNew() {
	limited, err := throttlehttp.New(throttlehttp.Config{
		Limiter: throttle.New(throttle.NewMemoryStore()), // NewRedisStore, for several processes
		Limits: []throttlehttp.Limit{
			{Name: "key", Key: throttlehttp.Header("Authorization"), Rules: []throttle.Rule{throttle.Window(2, time.Minute)}},
		},
		OnTrouble: throttlehttp.Open, // without Redis: serve
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	api := limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	for range 3 {
		r := httptest.NewRequest(http.MethodGet, "/v1/", nil)
		r.Header.Set("Authorization", "Bearer secret")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		left, _, _ := strings.Cut(w.Header().Get("RateLimit"), ";t=") // the seconds until more is left
		fmt.Println(w.Code, left)
	}
	// Output:
	// 200 "key window 2/1m";r=1
	// 200 "key window 2/1m";r=0
	// 429 "key window 2/1m";r=0
}
