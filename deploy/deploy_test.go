// Package deploy is a test of the files beside it.
package deploy

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Every metric that an alarm names is one that the programs have.
func TestAlertsNameMetrics(t *testing.T) {
	defined := make(map[string]bool)
	for _, name := range []string{"../queue/metrics.go", "../queue/watch/collector.go", "../queue/watch/tenantcollector.go", "../queue/outbox/collector.go", "../queue/outbox/report.go"} {
		for _, m := range regexp.MustCompile(`(?:Name: "waterclock_|describe\(")([a-z_]+)"`).FindAllStringSubmatch(read(t, name), -1) {
			defined["waterclock_"+m[1]] = true
		}
	}
	rules := regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(read(t, "prometheus/alerts.yaml"), "")
	named := regexp.MustCompile(`waterclock_[a-z_]+`).FindAllString(rules, -1)
	if len(defined) < 10 || len(named) < 9 {
		t.Fatalf("%d metrics, %d named in alarms: the test reads nothing", len(defined), len(named))
	}
	for _, name := range named {
		if !defined[strings.TrimSuffix(name, "_bucket")] {
			t.Errorf("alerts.yaml: there is no metric %s", name)
		}
	}
}

// Each alarm is seen to fire and to be silent.
func TestEachAlertIsTested(t *testing.T) {
	rules, tests := read(t, "prometheus/alerts.yaml"), read(t, "prometheus/alerts_test.yaml")
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 10 {
		t.Fatalf("%d alarms: the test reads nothing", len(alerts))
	}
	for _, alert := range alerts {
		if !regexp.MustCompile(`alertname: ` + alert[1] + `\n\s+eval_time: \w+\n\s+exp_alerts: \[\{`).MatchString(tests) {
			t.Errorf("alerts_test.yaml: %s never fires", alert[1])
		}
		if !strings.Contains(tests, "{alertname: "+alert[1]+", ") {
			t.Errorf("alerts_test.yaml: %s is never silent", alert[1])
		}
	}
}

// The alarms fire when somebody is needed, and not while a backlog waits for its limits.
func TestAlerts(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool")
	}
	for _, args := range [][]string{
		{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}, {"check", "config", "prometheus.yaml"},
	} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = "prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

var (
	ofQueue = regexp.MustCompile(`\bwaterclock_queue_[a-z_]+`)
	once    = regexp.MustCompile(`(?:(?:max|group) by \([a-z, ]+\) |absent)\((?:(?:rate|increase|changes|max_over_time)\()?(waterclock_queue_[a-z_]+)`)
)

// repeated returns the metrics of a queue in an expression that it would count once for each serve, each of which exports
// them: it takes no maximum over instances.
func repeated(expression string) (names []string) {
	return ofQueue.FindAllString(once.ReplaceAllString(expression, ""), -1)
}

// With two serve an alarm fires once, and no panel shows twice as much.
func TestNothingIsCountedTwice(t *testing.T) {
	if got := repeated(`sum(waterclock_queue_a) + max by (queue) (sum(waterclock_queue_b)) + max by (queue) (rate(waterclock_queue_c[5m])) + sum by (queue) (waterclock_jobs)`); len(got) != 2 {
		t.Fatalf("repeated finds %q, want two", got)
	}
	n := 0
	for _, name := range []string{"prometheus/alerts.yaml", "grafana/waterclock.json"} {
		for line := range strings.Lines(regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(read(t, name), "")) {
			if strings.Contains(line, "label_values(") {
				continue
			}
			n += len(ofQueue.FindAllString(line, -1))
			if names := repeated(line); len(names) > 0 {
				t.Errorf("%s: %q would be counted once for each serve: %s", name, names, strings.TrimSpace(line))
			}
		}
	}
	if n < 25 {
		t.Errorf("%d metrics: the test reads nothing", n)
	}
}
