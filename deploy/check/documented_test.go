package check

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/strvals"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/waterclock/waterclock/deploy/check/chart"
)

const page = "../../docs/kubernetes.md"

// The kustomization that the page shows builds, with the reader's image and policies.
func TestDocumentedKustomization(t *testing.T) {
	shown := regexp.MustCompile("(?s)```yaml\n(apiVersion: kustomize.*?)```").FindStringSubmatch(read(t, page))
	if shown == nil {
		t.Fatal("the page shows no kustomization")
	}
	dir, err := os.MkdirTemp("testdata", "documented-") // beside what it refers to, here by paths
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const policies = "default: mine\npolicies: {mine: {}}\n"
	text := strings.ReplaceAll(shown[1], "github.com/waterclock/waterclock/deploy/", "../../../")
	for name, text := range map[string]string{"kustomization.yaml": text, "policies.yaml": policies} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	objects := decode(t, kustomized(t, dir))
	if got := one[*corev1.ConfigMap](t, objects, "waterclock-policies").Data["policies.yaml"]; got != policies {
		t.Errorf("the policies are\n%s", got)
	}
	for _, d := range all[*appsv1.Deployment](objects) {
		if image := d.Spec.Template.Spec.Containers[0].Image; image != "registry.example/waterclock:v0.1.0" {
			t.Errorf("%s runs %s", d.Name, image)
		}
	}
	one[*ScaledObject](t, objects, "waterclock-worker")
}

// helm understands the values of each command that the page shows.
func TestDocumentedValues(t *testing.T) {
	text := regexp.MustCompile(`\\\n\s*`).ReplaceAllString(read(t, page), "")
	commands := regexp.MustCompile("helm (?:install|upgrade) (\\w+) deploy/helm/waterclock ([^\n`]*)").FindAllStringSubmatch(text, -1)
	if len(commands) < 3 {
		t.Fatalf("the page shows %d commands", len(commands))
	}
	for _, command := range commands {
		values := make(chart.Values)
		for _, set := range regexp.MustCompile(`--set(-file)? ('[^']*'|\S+)`).FindAllStringSubmatch(command[2], -1) {
			value := strings.Trim(set[2], "'")
			if set[1] != "" {
				name, _, _ := strings.Cut(value, "=")
				value = name + "=text"
			}
			if err := strvals.ParseInto(value, values); err != nil {
				t.Errorf("%s: %v", value, err)
			}
		}
		if len(values) == 0 {
			t.Errorf("no values in %s", command[0])
		}
		decode(t, template(t, command[1], values))
	}
	// Values that are named in the text.
	for _, m := range regexp.MustCompile("`((?:policies|monitoring|autoscaling|networkPolicy|worker|serve|image)\\.[a-zA-Z]+)(: [^`]*)?`").FindAllStringSubmatch(text, -1) {
		var value any = "http://prometheus:9090"
		group, name, _ := strings.Cut(m[1], ".")
		switch {
		case m[2] != "":
			if err := yaml.Unmarshal([]byte(strings.TrimPrefix(m[2], ": ")), &value); err != nil {
				t.Error(err)
			}
		case name == "egress":
			value = []any{}
		}
		if _, err := chart.Render(chartDir, chart.Release, chart.Values{group: chart.Values{name: value}}); err != nil {
			t.Errorf("%s: %v", m[0], err)
		}
	}
}

// The page's requests and limits are those of the manifests.
func TestDocumentedSizes(t *testing.T) {
	text := read(t, page)
	for _, d := range all[*appsv1.Deployment](build(t, "base")) {
		c := d.Spec.Template.Spec.Containers[0]
		requests := c.Resources.Requests
		var limit string
		for _, e := range c.Env {
			if e.Name == "GOMEMLIMIT" {
				limit = e.Value
			}
		}
		if want := "| " + strings.Join([]string{requests.Cpu().String() + ", " + requests.Memory().String(), c.Resources.Limits.Memory().String(), limit}, " | ") + " |"; !strings.Contains(text, want) {
			t.Errorf("%s: the page lacks %s", c.Name, want)
		}
	}
}
