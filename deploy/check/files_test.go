package check

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestCompose(t *testing.T) {
	options, err := cli.NewProjectOptions([]string{"../compose.yaml"}, cli.WithName("waterclock"))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"valkey", "worker", "dashboard", "prometheus", "grafana"} {
		service, err := project.GetService(name)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, volume := range service.Volumes { // docker makes a directory of what is missing
			if volume.Type == "bind" {
				if _, err := os.Stat(volume.Source); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is open to everybody", name, port.Published)
			}
		}
	}
	if worker := project.Services["worker"]; worker.StopGracePeriod == nil || time.Duration(*worker.StopGracePeriod).Seconds() <= float64(drainSeconds(t)) {
		t.Errorf("the worker has %v to stop, and takes %d s", worker.StopGracePeriod, drainSeconds(t))
	}
}
