package check

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	sigsyaml "sigs.k8s.io/yaml"

	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"

	"github.com/waterclock/waterclock/deploy/check/chart"
)

const chartDir = "../helm/waterclock"

func parse(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := sigsyaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
}

func marshal(t *testing.T, value any) []byte {
	t.Helper()
	text, err := sigsyaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// template is helm template.
func template(t *testing.T, release string, values chart.Values) []byte {
	t.Helper()
	rendered, err := chart.Render(chartDir, release, values)
	if err != nil {
		t.Fatal(err)
	}
	return chart.Manifest(rendered)
}

// resources returns the resources of a manifest by kind and name.
func resources(t *testing.T, manifest []byte) map[string]any {
	t.Helper()
	found := make(map[string]any)
	for _, document := range documents(t, manifest) {
		var object map[string]any
		parse(t, document, &object)
		metadata := object["metadata"].(map[string]any)
		name := object["kind"].(string) + " " + metadata["namespace"].(string) + "/" + metadata["name"].(string)
		if found[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		found[name] = pruned(object)
	}
	return found
}

func union(a, b map[string]any) map[string]any {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}

// pruned removes annotations that are empty: kustomize leaves them where it has removed the last one.
func pruned(of any) any {
	if object, ok := of.(map[string]any); ok {
		maps.DeleteFunc(object, func(key string, value any) bool {
			annotations, ok := pruned(value).(map[string]any)
			return ok && key == "annotations" && len(annotations) == 0
		})
	}
	return of
}

// Files that are made from others are as go generate makes them.
func TestGenerated(t *testing.T) {
	files, err := chart.Files("..")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Errorf("%d files: the test reads nothing", len(files))
	}
	for file, want := range files {
		if diff := cmp.Diff(want, read(t, filepath.Join("..", file))); diff != "" {
			t.Errorf("%s is not what go generate makes (- made, + there):\n%s", file, diff)
		}
	}
}

// helm template and kustomize build make the same resources.
func TestChartIsTheManifests(t *testing.T) {
	hpa, keda, monitored := chart.Values{"autoscaling": chart.Values{"by": "hpa"}}, chart.Values{"autoscaling": chart.Values{"by": "keda"}}, chart.Values{
		"autoscaling": chart.Values{"by": "keda"}, "monitoring": chart.Values{"enabled": true},
	}
	for dir, values := range map[string]chart.Values{
		"../kubernetes/base": nil, "../kubernetes/hpa": hpa, "../kubernetes/keda": keda, "testdata/monitored": monitored,
	} {
		built, rendered := resources(t, kustomized(t, dir)), resources(t, template(t, chart.Release, values))
		if len(built) < 8 {
			t.Errorf("%s: %d resources", dir, len(built))
		}
		for name := range union(built, rendered) {
			if diff := cmp.Diff(built[name], rendered[name]); diff != "" {
				t.Errorf("%s: %s (- kustomize, + helm)\n%s", dir, name, diff)
			}
		}
	}
}

// What values change is what they say, and the resources are valid.
func TestValues(t *testing.T) {
	text := "default: p\npolicies: {p: {}}\n"
	var values chart.Values
	parse(t, []byte(`
queue: mail
image: {repository: registry.example/waterclock, tag: v1, pullPolicy: Always, pullSecrets: [{name: registry}]}
secret: other
worker:
  replicas: 5
  concurrency: 7
  args: [--sender, fcm, --secret-file, /etc/waterclock-secret/key.json]
  senderSecret: fcm
  env: [{name: HTTPS_PROXY, value: "http://proxy:3128"}]
  resources: {requests: {cpu: 1, memory: 1Gi}}
  serviceAccountName: sender
  priorityClassName: high
  podLabels: {team: mail}
  podAnnotations: {note: hello}
  nodeSelector: {disk: ssd}
  tolerations: [{key: a, operator: Exists}]
  affinity: {nodeAffinity: {}}
  volumes: [{name: ca, configMap: {name: ca}}]
  volumeMounts: [{name: ca, mountPath: /ca}]
serve: {args: [--all], volumes: [{name: ca, configMap: {name: ca}}], volumeMounts: [{name: ca, mountPath: /ca}], podLabels: {team: mail}}
monitoring: {enabled: true, labels: {release: prometheus}}
networkPolicy: {egress: [{ports: [{port: 4317}]}]}
`), &values)
	values["policies"] = chart.Values{"text": text}
	manifest := template(t, "mail", values)
	objects := decode(t, manifest)
	worker := one[*appsv1.Deployment](t, objects, "mail-worker")
	pod := worker.Spec.Template.Spec
	c := pod.Containers[0]
	args := strings.Join(c.Args, " ")
	if want := "waterclock-worker --queue=mail --policies=/etc/waterclock/policies.yaml --concurrency=7 --http=:9090 --sender fcm --secret-file /etc/waterclock-secret/key.json"; args != want {
		t.Errorf("the worker runs %s\nwant %s", args, want)
	}
	if *worker.Spec.Replicas != 5 || c.Image != "registry.example/waterclock:v1" || c.ImagePullPolicy != "Always" || pod.ImagePullSecrets[0].Name != "registry" ||
		c.Env[0].ValueFrom.SecretKeyRef.Name != "other" || c.Env[2].Name != "HTTPS_PROXY" || len(pod.Volumes) != 3 || len(c.VolumeMounts) != 3 ||
		pod.Volumes[1].Secret.SecretName != "fcm" || pod.ServiceAccountName != "sender" || pod.PriorityClassName != "high" ||
		worker.Spec.Template.Labels["team"] != "mail" || worker.Spec.Template.Annotations["note"] != "hello" || pod.NodeSelector["disk"] != "ssd" ||
		len(pod.Tolerations) != 1 || pod.Affinity == nil || c.Resources.Requests.Cpu().Value() != 1 || c.Resources.Limits.Memory().Value() != 512<<20 {
		t.Errorf("the worker is\n%s", marshal(t, worker))
	}
	serve := one[*appsv1.Deployment](t, objects, "mail-serve").Spec.Template.Spec.Containers[0]
	if !slices.Contains(serve.Args, "--all") || len(serve.VolumeMounts) != 1 {
		t.Errorf("serve is\n%s", marshal(t, serve))
	}
	found := resources(t, manifest)
	if got := found["ConfigMap waterclock/mail-policies"].(map[string]any)["data"].(map[string]any)["policies.yaml"]; got != text {
		t.Errorf("the policies are %q", got)
	}
	for name := range found {
		if !strings.HasPrefix(strings.SplitAfter(name, "/")[1], "mail") {
			t.Errorf("%s is of no release", name)
		}
	}
	for name, o := range map[string]chart.Values{
		"NetworkPolicy": {"networkPolicy": chart.Values{"enabled": false}}, "ConfigMap": {"policies": chart.Values{"load": false}},
	} {
		without := resources(t, template(t, "mail", o))
		if slices.ContainsFunc(slices.Collect(maps.Keys(without)), func(n string) bool { return strings.HasPrefix(n, name+" ") }) || len(without) < 6 {
			t.Errorf("without %s there is %q", name, slices.Sorted(maps.Keys(without)))
		}
	}
	bare := one[*appsv1.Deployment](t, decode(t, template(t, "mail", chart.Values{"policies": chart.Values{"load": false}})), "mail-worker").Spec.Template.Spec
	if len(bare.Volumes) != 0 || strings.Contains(strings.Join(bare.Containers[0].Args, " "), "--policies") {
		t.Errorf("without policies to load a worker is\n%s", marshal(t, bare))
	}
}

// Values that are misspelt, or of another type, are refused, and the error names them.
func TestWrongValues(t *testing.T) {
	for text, want := range map[string]string{
		`{workers: {replicas: 3}}`:                               "'workers'",
		`{worker: {replica: 3}}`:                                 "'replica'",
		`{worker: {replicas: "3"}}`:                              "/worker/replicas",
		`{worker: {concurrency: 0}}`:                             "/worker/concurrency",
		`{worker: {args: --sender log}}`:                         "/worker/args",
		`{worker: {resources: {limit: {memory: 1Gi}}}}`:          "'limit'",
		`{worker: {resources: {limits: {memory: 1GB}}}}`:         "/worker/resources/limits/memory",
		`{worker: {goMemLimit: 460Mi}}`:                          "/worker/goMemLimit",
		`{worker: {podLabels: {app.kubernetes.io/name: other}}}`: "'app.kubernetes.io/name'",
		`{serve: {env: [{name: A, value: 3}]}}`:                  "/serve/env/0/value",
		`{image: {tag: 1.0}}`:                                    "/image/tag",
		`{autoscaling: {by: HPA}}`:                               "/autoscaling/by",
		`{monitoring: {interval: 15}}`:                           "/monitoring/interval",
		`{networkPolicy: {egress: {}}}`:                          "/networkPolicy/egress",
		`{queue: "a:b"}`:                                         "/queue",
		`{policies: {file: x}}`:                                  "'file'",
		`{secret: null}`:                                         "secret",
		`{queue: null}`:                                          "queue",
	} {
		var values chart.Values
		parse(t, []byte(text), &values)
		if _, err := chart.Render(chartDir, chart.Release, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error about %s", text, err, want)
		}
	}
}

// Each value of values.yaml is in the schema, and each of the schema is in values.yaml.
func TestSchemaIsComplete(t *testing.T) {
	var values, schema map[string]any
	parse(t, []byte(read(t, chartDir+"/values.yaml")), &values)
	parse(t, []byte(read(t, chartDir+"/values.schema.json")), &schema)
	fields := func(of any) []string { return slices.Sorted(maps.Keys(of.(map[string]any))) }
	same := func(name string, values, properties any) {
		known := slices.DeleteFunc(fields(properties), func(f string) bool { return f == "global" })
		if diff := cmp.Diff(fields(values), known); diff != "" {
			t.Errorf("%s: (- values.yaml, + values.schema.json)\n%s", name, diff)
		}
	}
	same("the chart", values, schema["properties"])
	groups := 0
	for name, property := range schema["properties"].(map[string]any) {
		if inner := property.(map[string]any)["properties"]; inner != nil {
			groups++
			same(name, values[name], inner)
		}
	}
	if groups < 7 {
		t.Errorf("%d groups of values: the test reads nothing", groups)
	}
}

// helm lint finds nothing, and the notes say what is to be done.
func TestLint(t *testing.T) {
	linted := lint.AllWithKubeVersion(chartDir, nil, chart.Namespace, nil)
	for _, m := range linted.Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
	rendered, err := chart.Render(chartDir, "mail", chart.Values{"queue": "mail"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"kubectl -n waterclock create secret generic waterclock --from-literal=redis=", `--from-literal=token="$(openssl rand -hex 16)"`,
		"rollout status deployment mail-worker", "http://mail-serve.waterclock:9091", "--set-file policies.text=policies.yaml", `The sender "log"`,
	} {
		if !strings.Contains(rendered["NOTES.txt"], want) {
			t.Errorf("the notes lack %s:\n%s", want, rendered["NOTES.txt"])
		}
	}
	if _, err := os.Stat(chartDir + "/files/policies.yaml"); err != nil {
		t.Error(err)
	}
}
