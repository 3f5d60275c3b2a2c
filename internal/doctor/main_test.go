package doctor_test

import (
	"os"
	"testing"

	"github.com/waterclock/waterclock/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.RunWaiting(m, 2)) }
