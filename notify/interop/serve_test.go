package interop

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"
)

func serve(t *testing.T, h http.HandlerFunc) (url string) {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
