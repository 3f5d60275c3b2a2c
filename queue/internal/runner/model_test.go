package runner

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

// What the environment says of the model: how many operations, which seed, and the only world of it
// to be played; how many worlds may differ before it ends.
const (
	operationsVariable = "WATERCLOCK_MODEL_OPERATIONS"
	seedVariable       = "WATERCLOCK_MODEL_SEED"
	worldVariable      = "WATERCLOCK_MODEL_WORLD"
	differVariable     = "WATERCLOCK_MODEL_DIFFERENCES"
)

const (
	modelLease     = 3 * time.Second // of a worker
	perWorld       = 250             // operations
	logLines       = 60              // of what happened, for each difference
	fewDifferences = 1
)

// TestModel lets random things happen to whole queues, and compares what their handlers see with a
// textbook that shares nothing with the engine (model_judge_test.go). An operation is an act of a
// producer, an operator, or of fate. Handlers run as the scheduler of Go lets them: a world that is
// played again has the same acts, and nearly the same course.
//
// It is a survey, and runs where the number of operations is given: its judge still calls lanes due
// whose first job has only just come back, and asks for deadlines of jobs that no leader has read. Each
// difference wants a look at its log.
func TestModel(t *testing.T) {
	if os.Getenv(operationsVariable) == "" {
		t.Skip("a survey: set " + operationsVariable + ", for example to 3000")
	}
	seed, only := fromEnvironment(t, seedVariable, 0), fromEnvironment(t, worldVariable, -1)
	operations, differences := fromEnvironment(t, operationsVariable, 0), fromEnvironment(t, differVariable, fewDifferences)
	if seed == 0 {
		seed = int(rand.Uint32())
	}
	logging.Disable() // of broken connections
	t.Logf("%s=%d %s=%d", seedVariable, seed, operationsVariable, operations)
	done, begun := 0, time.Now()
	for round := max(only, 0); (done < operations || only >= 0) && differences > 0; round++ {
		var w *world
		synctest.Test(t, func(t *testing.T) {
			w = newWorld(t, uint64(seed), round)
			w.play()
			w.end()
		})
		done += w.op
		for _, text := range w.wrong {
			t.Errorf("after %d operations: %s", done, text)
		}
		if len(w.wrong) > 0 {
			differences--
		}
		if only >= 0 {
			break
		}
	}
	t.Logf("%d operations in %v", done, time.Since(begun).Round(time.Second))
}

func fromEnvironment(t *testing.T, name string, usual int) int {
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
