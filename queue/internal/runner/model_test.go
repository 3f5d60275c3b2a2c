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
// to be played, or the only scene (its number); how many worlds may differ before it ends.
const (
	operationsVariable = "WATERCLOCK_MODEL_OPERATIONS"
	seedVariable       = "WATERCLOCK_MODEL_SEED"
	worldVariable      = "WATERCLOCK_MODEL_WORLD"
	sceneVariable      = "WATERCLOCK_MODEL_SCENE"
	differVariable     = "WATERCLOCK_MODEL_DIFFERENCES"
)

// How a world is played, where the environment does not say otherwise.
const (
	modelLease     = 3 * time.Second // of a worker
	perWorld       = 250             // operations
	logLines       = 60              // of what happened, for each difference
	fewDifferences = 1

	// With the other tests the same acts are played each time.
	usualOperations = 1000
	shortOperations = 300 // with -short
	usualSeed       = 308
)

// TestModel lets random things happen to whole queues, and compares what their handlers see with a
// textbook that shares nothing with the engine (model_judge_test.go). An operation is an act of a
// producer, an operator, or of fate. Handlers run as the scheduler of Go lets them: a world that is
// played again has the same acts, and nearly the same course.
//
// A million operations take some 80 minutes of one core. Each difference comes with what happened to those it is about, and
// with what plays its world again: there is one in some 200,000 operations, and each wants a look at its log. Four in five are
// something that the judge does not know.
func TestModel(t *testing.T) {
	t.Parallel()
	seed, only := fromEnvironment(t, seedVariable, 0), fromEnvironment(t, worldVariable, -1)
	usual := usualOperations
	if testing.Short() {
		usual = shortOperations
	}
	if os.Getenv(operationsVariable) == "" {
		seed = usualSeed
	}
	operations, differences := fromEnvironment(t, operationsVariable, usual), fromEnvironment(t, differVariable, fewDifferences)
	if seed == 0 {
		seed = int(rand.Uint32())
	}
	logging.Disable() // of broken connections
	t.Logf("%s=%d %s=%d", seedVariable, seed, operationsVariable, operations)
	done, begun := 0, time.Now()
	scene := fromEnvironment(t, sceneVariable, -1)
	for round := max(only, 0); (done < operations || only >= 0) && differences > 0; round++ {
		if scene >= 0 && round%len(scenes) != scene {
			continue
		}
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
