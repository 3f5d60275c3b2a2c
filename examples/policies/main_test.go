package policies

import (
	"testing"

	"github.com/waterclock/waterclock/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.CollectLess()
	m.Run()
}
