package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const roundsVariable = "WATERCLOCK_FAULT_ROUNDS" // how many times as many faults as usual

func TestMain(m *testing.M) {
	if settings := os.Getenv(workerVariable); settings != "" {
		os.Exit(work(settings))
	}
	redis.SetLogger(silence{}) // faults are what is wanted
	// Scenes wait more than they work.
	flag.Parse()
	if !given("test.parallel") {
		flag.Set("test.parallel", "4")
	}
	status := m.Run()
	if testing.Verbose() {
		results.print()
	}
	os.Exit(status)
}

func given(name string) (given bool) {
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	return given
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// setting returns a number from the environment.
func setting(t testing.TB, variable string, otherwise int64) int64 {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s is %q; want a number", variable, text)
	}
	return n
}

// A row is what one fault did.
type row struct {
	fault                               string
	times, jobs, lost, twice, violating int
	recovery                            time.Duration
}

func (r row) String() string {
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %.1f s |",
		r.fault, r.times, r.jobs, r.lost, r.twice, r.violating, r.recovery.Seconds())
}

// table collects the rows of a run, for docs/operations.md.
type table struct {
	mu   sync.Mutex
	rows []row
}

var results table

func (t *table) add(r row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, r)
}

func (t *table) print() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.rows) == 0 {
		return
	}
	order := func(r row) int {
		return slices.IndexFunc(faults, func(f fault) bool { return f.name == r.fault })
	}
	slices.SortFunc(t.rows, func(a, b row) int { return order(a) - order(b) })
	fmt.Println("\n| fault | times | jobs | lost | twice | violations | recovery |\n|---|---|---|---|---|---|---|")
	for _, r := range t.rows {
		fmt.Println(r)
	}
}
