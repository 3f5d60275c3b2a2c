package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// A catalogue is the metrics that are registered, with their labels.
type catalogue map[string][]string

var description = regexp.MustCompile(`fqName: "([a-z_]+)".*variableLabels: \{([^}]*)\}`)

// Register implements [prometheus.Registerer].
func (c catalogue) Register(of prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 100)
	of.Describe(descs)
	close(descs)
	for desc := range descs {
		m := description.FindStringSubmatch(desc.String())
		c[m[1]] = append(strings.Split(m[2], ","), "le")
	}
	return nil
}

// MustRegister implements [prometheus.Registerer].
func (c catalogue) MustRegister(all ...prometheus.Collector) {
	for _, of := range all {
		_ = c.Register(of)
	}
}

// Unregister implements [prometheus.Registerer].
func (c catalogue) Unregister(prometheus.Collector) bool { return false }

type nobody struct{}

func (nobody) Send(context.Context, notify.Message, notify.Target) notify.Outcome {
	return notify.Outcome{}
}

// metrics returns what a worker, its sender and a collector have.
func metrics(t *testing.T) catalogue {
	c, rdb := make(catalogue), redis.NewClient(&redis.Options{})
	t.Cleanup(func() { rdb.Close() })
	_, err := queue.NewWorker(rdb, queue.WorkerConfig{Queues: []string{"push"}, Registerer: c})
	if err == nil {
		_, err = notify.NewHandler(nobody{}, notify.HandlerConfig{Registerer: c})
	}
	inspector, bad := watch.New(rdb, "push")
	if err != nil || bad != nil {
		t.Fatal(err, bad)
	}
	c.MustRegister(watch.NewCollector(inspector))
	return c
}

// A dashboard is what the test reads of one.
type dashboard struct {
	Panels []struct {
		Title, Type string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ Expr string }
	}
	Annotations struct{ List []struct{ Expr string } }
}

// Every metric that the dashboard names exists, with the labels that it is asked by; its
// expressions are PromQL, and no panel lies on another one.
func TestGrafana(t *testing.T) {
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, "grafana/waterclock.json")), &d); err != nil {
		t.Fatal(err)
	}
	known, expressions, taken := metrics(t), []string{}, make(map[string]string)
	for _, p := range d.Panels {
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				at := fmt.Sprint(x, " ", y)
				if x >= 24 || taken[at] != "" {
					t.Errorf("%q lies on %q", p.Title, taken[at])
				}
				taken[at] = p.Title
			}
		}
		if p.Title == "" || (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("panel %q of type %s has %d expressions", p.Title, p.Type, len(p.Targets))
		}
		for _, target := range p.Targets {
			expressions = append(expressions, target.Expr)
		}
	}
	for _, a := range d.Annotations.List {
		expressions = append(expressions, a.Expr)
	}
	if len(known) < 15 || len(expressions) < 20 {
		t.Fatalf("%d metrics, %d expressions: the test reads nothing", len(known), len(expressions))
	}
	for _, e := range expressions {
		checkExpression(t, known, e)
	}
	checkPromQL(t, expressions)
}

var (
	metric   = regexp.MustCompile(`waterclock_[a-z_]+`)
	matcher  = regexp.MustCompile(`([a-z_]+)(?:=~|!=|=)"`)
	grouping = regexp.MustCompile(`by \(([^)]*)\)`)
)

func checkExpression(t *testing.T, known catalogue, e string) {
	names := metric.FindAllString(e, -1)
	if len(names) != 1 {
		t.Errorf("%s: %d metrics", e, len(names))
		return
	}
	labels := known[strings.TrimSuffix(names[0], "_bucket")]
	if labels == nil {
		t.Errorf("%s: there is no metric %s", e, names[0])
	}
	var asked []string
	for _, m := range matcher.FindAllStringSubmatch(e, -1) {
		asked = append(asked, m[1])
	}
	for _, m := range grouping.FindAllStringSubmatch(e, -1) {
		asked = append(asked, strings.Split(m[1], ", ")...)
	}
	for _, label := range asked {
		if !slices.Contains(labels, label) {
			t.Errorf("%s: %s has the labels %q, and not %s", e, names[0], labels, label)
		}
	}
}

// checkPromQL lets promtool read the expressions, as recording rules.
func checkPromQL(t *testing.T, expressions []string) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool")
	}
	var rules strings.Builder
	rules.WriteString("groups:\n- name: grafana\n  rules:\n")
	for i, e := range expressions {
		e = strings.NewReplacer("$__rate_interval", "5m", "$queue", "push").Replace(e)
		fmt.Fprintf(&rules, "  - {record: 'grafana:%d', expr: '%s'}\n", i, e)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
