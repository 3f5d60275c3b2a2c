package dashboard

import (
	"context"
	"testing"
	"time"
)

// What is being read when everything is forgotten is not kept, and nobody who asks later gets it.
func TestAReadingThatIsForgotten(t *testing.T) {
	var c cache
	begun, release := make(chan struct{}), make(chan struct{})
	slow := reading{"key", time.Hour, func(context.Context) (any, error) {
		close(begun)
		<-release
		return "old", nil
	}}
	ended := make(chan any)
	go func() {
		value, _ := c.get(t.Context(), slow)
		ended <- value
	}()
	<-begun
	c.forget()
	quick := reading{"key", time.Hour, func(context.Context) (any, error) { return "new", nil }}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if value, err := c.get(ctx, quick); value != "new" {
		t.Errorf("after forget: %v, %v", value, err)
	}
	close(release)
	if value := <-ended; value != "old" {
		t.Errorf("the one who asked before: %v", value)
	}
	if value, _ := c.get(t.Context(), quick); value != "new" {
		t.Errorf("later: %v", value)
	}
}
