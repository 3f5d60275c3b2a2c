package databases

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis reports every failed dial of the tests that cut connections
	if relay := os.Getenv(relayVariable); relay != "" {
		runRelay(relay) // until it is killed
	}
	code := m.Run()
	servers.postgres.stop()
	servers.mariadb.stop()
	os.Exit(code)
}
