// Package chart renders the Helm chart of deploy/helm, as helm template does, and makes the manifests of
// deploy/kubernetes from it: they are the chart with its default values, as files that kustomize reads.
//
//	go generate ./...    # in deploy/check, after the chart, examples/policies.yaml or the alarms have changed
package chart

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// Values are values of the chart, as in a file of values.
type Values = map[string]any

// The release whose manifests deploy/kubernetes has, and its namespace.
const (
	Release   = "waterclock"
	Namespace = "waterclock"
)

// Render returns what each template of the chart in a directory makes of the values, by the template's file name. What is
// wrong with the values is an error.
func Render(dir, release string, values Values) (map[string]string, error) {
	loaded, err := loader.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	return render(loaded, release, values)
}

func render(loaded *chart.Chart, release string, values Values) (map[string]string, error) {
	all, err := chartutil.ToRenderValues(loaded, values, chartutil.ReleaseOptions{Name: release, Namespace: Namespace, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	texts, err := engine.Render(loaded, all)
	if err != nil {
		return nil, err
	}
	rendered := make(map[string]string)
	for name, text := range texts {
		rendered[path.Base(name)] = text
	}
	return rendered, nil
}

// Manifest returns the YAML of what [Render] has returned.
func Manifest(rendered map[string]string) []byte {
	var all bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if text := rendered[name]; strings.HasSuffix(name, ".yaml") && strings.TrimSpace(text) != "" {
			fmt.Fprintf(&all, "---\n%s\n", text)
		}
	}
	return all.Bytes()
}

const generated = "# Made from deploy/helm/waterclock by go generate in deploy/check: change the chart.\n"

// Files returns the files that are made from others, by their paths in a directory deploy: the manifests from the chart;
// and what the chart and the manifests have of the example's policies and of the alarms.
func Files(deploy string) (map[string]string, error) {
	files := make(map[string]string)
	for file, source := range map[string]string{
		"helm/waterclock/files/policies.yaml": "../examples/policies.yaml",
		"helm/waterclock/files/alerts.yaml":   "prometheus/alerts.yaml",
		"kubernetes/base/policies.yaml":       "../examples/policies.yaml",
	} {
		text, err := os.ReadFile(filepath.Join(deploy, source))
		if err != nil {
			return nil, err
		}
		files[file] = string(text)
	}
	loaded, err := loader.LoadDir(filepath.Join(deploy, "helm/waterclock"))
	if err != nil {
		return nil, err
	}
	for _, f := range loaded.Files { // as they will be
		if text, ok := files["helm/waterclock/"+f.Name]; ok {
			f.Data = []byte(text)
		}
	}
	for _, m := range []struct {
		dir       string
		values    Values
		templates []string
	}{
		{"base", nil, []string{"worker.yaml", "serve.yaml", "networkpolicy.yaml"}},
		{"hpa", Values{"autoscaling": Values{"by": "hpa"}}, []string{"hpa.yaml"}},
		{"keda", Values{"autoscaling": Values{"by": "keda"}}, []string{"scaledobject.yaml"}},
		{"monitoring", Values{"monitoring": Values{"enabled": true}}, []string{"podmonitor.yaml", "prometheusrule.yaml"}},
	} {
		rendered, err := render(loaded, Release, m.values)
		if err != nil {
			return nil, err
		}
		for _, template := range m.templates {
			text := strings.TrimPrefix(strings.TrimSpace(rendered[template]), "---\n")
			files["kubernetes/"+m.dir+"/"+template] = generated + text + "\n"
		}
	}
	return files, nil
}
