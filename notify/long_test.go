package notify_test

import (
	"os"
	"testing"
)

// longTests is the environment variable that lets tests run whose virtual time is a day or
// more, or which repeat every row of a long table for fleets of several sizes.
const longTests = "WATERCLOCK_LONG"

func long(t *testing.T) {
	t.Helper()
	if os.Getenv(longTests) == "" {
		t.Skip("takes minutes; set " + longTests + "=1")
	}
}
