package schedule

import (
	"fmt"
	"testing"
)

// An instance that has places is not forgotten, however many others come to rest after it: nobody would give its places back.
func TestPlacesAreNotForgotten(t *testing.T) {
	s := New(Settings{}, "")
	of := func(scope string) Use {
		return Use{Name: "domain", Limit: Limit{Scope: PlacesOf(scope), Concurrency: Concurrency{Jobs: 5}, Leased: true}}
	}
	s.instance(of("l:domain:first"))
	s.Step(1, Leased{PlacesOf("l:domain:first"), 3})
	for k := range 2 * idleInstances {
		s.instance(of(fmt.Sprint("l:domain:", k)))
	}
	all := s.Leasing(2)
	if len(all) != 1 || all[0].Leased != 3 {
		t.Errorf("%+v; want the three places of the first", all)
	}
}
