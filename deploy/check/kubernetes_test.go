package check

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	sigsyaml "sigs.k8s.io/yaml"
)

// scaledObject is what this project uses of KEDA's resource, as its documentation describes it.
type scaledObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name, Namespace string
		Labels          map[string]string
	} `json:"metadata"`
	Spec struct {
		ScaleTargetRef struct{ Name string } `json:"scaleTargetRef"`
		MinReplicas    int                   `json:"minReplicaCount"`
		MaxReplicas    int                   `json:"maxReplicaCount"`
		Polling        int                   `json:"pollingInterval"`
		Cooldown       int                   `json:"cooldownPeriod"`
		Fallback       struct {
			FailureThreshold, Replicas int
		} `json:"fallback"`
		Triggers []struct {
			Type       string `json:"type"`
			MetricType string `json:"metricType"`
			Metadata   struct {
				ServerAddress, Query, Threshold string
			} `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

// build is kustomize build, and a strict reading of each resource: an unknown field is an error.
func build(t *testing.T, dir string) (typed []runtime.Object, scaled []scaledObject) {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../kubernetes/"+dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, autoscalingv2.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	for {
		document := make([]byte, 1<<20)
		n, err := documents.Read(document)
		if err == io.EOF {
			return typed, scaled
		}
		if err != nil {
			t.Fatal(err)
		}
		document = document[:n]
		if bytes.Contains(document, []byte("kind: ScaledObject")) {
			var s scaledObject
			if err := sigsyaml.UnmarshalStrict(document, &s); err != nil {
				t.Errorf("%s: %v\n%s", dir, err, document)
			}
			scaled = append(scaled, s)
			continue
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Errorf("%s: %v\n%s", dir, err, document)
			continue
		}
		typed = append(typed, object)
	}
}

// one returns the only resource of a type and, if it is not empty, a name.
func one[T runtime.Object](t *testing.T, all []runtime.Object, name string) (found T) {
	t.Helper()
	n := 0
	for _, object := range all {
		o, ok := object.(T)
		if named, has := object.(interface{ GetName() string }); ok && has && (name == "" || named.GetName() == name) {
			found = o
			n++
		}
	}
	if n != 1 {
		t.Fatalf("%d resources %T %q, want one", n, found, name)
	}
	return found
}

func TestBase(t *testing.T) {
	all, scaled := build(t, "base")
	if len(scaled) != 0 {
		t.Error("the base scales by itself")
	}
	worker := one[*appsv1.Deployment](t, all, "waterclock-worker")
	pod := worker.Spec.Template.Spec
	container := pod.Containers[0]
	if *pod.TerminationGracePeriodSeconds <= drainSeconds(t) {
		t.Errorf("%d s of grace, and a worker takes %d s to stop", *pod.TerminationGracePeriodSeconds, drainSeconds(t))
	}
	if container.LivenessProbe.HTTPGet.Path != "/healthz" || container.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Error("liveness must not depend on Redis, and readiness must")
	}
	for _, name := range []string{"waterclock-worker", "waterclock-serve"} {
		d := one[*appsv1.Deployment](t, all, name)
		c := d.Spec.Template.Spec.Containers[0]
		security := c.SecurityContext
		if !*d.Spec.Template.Spec.SecurityContext.RunAsNonRoot || !*security.ReadOnlyRootFilesystem || *security.AllowPrivilegeEscalation || !slices.Contains(security.Capabilities.Drop, "ALL") {
			t.Errorf("%s may do more than it needs", name)
		}
		if c.Env[0].ValueFrom == nil || c.Env[0].ValueFrom.SecretKeyRef == nil || c.Env[0].Name != "WATERCLOCK_REDIS" {
			t.Errorf("%s: Redis's URL, which may hold a password, comes from no secret", name)
		}
		if c.Resources.Limits.Cpu() != nil && !c.Resources.Limits.Cpu().IsZero() {
			t.Errorf("%s: a limit on CPU delays starts", name)
		}
		for key, value := range d.Spec.Selector.MatchLabels {
			if d.Spec.Template.Labels[key] != value {
				t.Errorf("%s selects %s=%s, and its pods have no such label", name, key, value)
			}
		}
	}
	budget := one[*policyv1.PodDisruptionBudget](t, all, "")
	if fmt.Sprint(budget.Spec.Selector.MatchLabels) != fmt.Sprint(worker.Spec.Selector.MatchLabels) || budget.Spec.MinAvailable.IntValue() >= int(*worker.Spec.Replicas) {
		t.Errorf("the disruption budget %v lets no node be drained, or is not the workers'", budget.Spec)
	}
	policies := one[*corev1.ConfigMap](t, all, "waterclock-policies")
	if policies.Data["policies.yaml"] != read(t, "../../examples/policies.yaml") {
		t.Error("the policies are not examples/policies.yaml: copy it")
	}
}

// The network policies bind the pods of waterclock and leave all others of the namespace alone,
// such as Redis; and they let those pods reach what the documented addresses of Redis need.
func TestNetworkPolicies(t *testing.T) {
	all, _ := build(t, "base")
	pods := map[string]labels.Set{"redis": {"app": "redis"}, "other's worker": {"app.kubernetes.io/component": "worker"}}
	for _, name := range []string{"waterclock-worker", "waterclock-serve"} {
		pods[name] = one[*appsv1.Deployment](t, all, name).Spec.Template.Labels
	}
	for policy, want := range map[string]string{"waterclock": "waterclock-serve waterclock-worker", "waterclock-api": "waterclock-serve"} {
		selector, err := metav1.LabelSelectorAsSelector(&one[*networkingv1.NetworkPolicy](t, all, policy).Spec.PodSelector)
		if err != nil {
			t.Fatal(err)
		}
		var selected []string
		for name, set := range pods {
			if selector.Matches(set) {
				selected = append(selected, name)
			}
		}
		slices.Sort(selected)
		if got := strings.Join(selected, " "); got != want {
			t.Errorf("%s binds the pods %q, want %q", policy, got, want)
		}
	}
	reached := make(map[int32]bool)
	for _, rule := range one[*networkingv1.NetworkPolicy](t, all, "waterclock").Spec.Egress {
		for _, port := range rule.Ports {
			reached[port.Port.IntVal] = true
		}
	}
	for _, port := range []int32{53, 443, 6379, 6380, 26379} {
		if !reached[port] {
			t.Errorf("pods cannot reach port %d", port)
		}
	}
	api := one[*networkingv1.NetworkPolicy](t, all, "waterclock-api").Spec.Ingress[0]
	producer, err := metav1.LabelSelectorAsSelector(api.From[0].PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	serve := one[*appsv1.Deployment](t, all, "waterclock-serve").Spec.Template.Spec.Containers[0]
	if !producer.Matches(labels.Set{"waterclock-client": "true"}) || producer.Matches(labels.Set{}) ||
		api.Ports[0].Port.IntVal != serve.Ports[0].ContainerPort {
		t.Errorf("producers do not reach the HTTP API: %+v", api)
	}
	if token := serve.Env[1]; token.Name != "WATERCLOCK_TOKEN" || token.ValueFrom.SecretKeyRef.Key != "token" {
		t.Errorf("no token for the HTTP API: %+v", token)
	}
}

// Workers are scaled on what is overdue, never on what waits.
func TestScaling(t *testing.T) {
	hpa, _ := build(t, "hpa")
	metric := one[*autoscalingv2.HorizontalPodAutoscaler](t, hpa, "").Spec.Metrics[0].External
	_, keda := build(t, "keda")
	if len(keda) != 1 || len(keda[0].Spec.Triggers) != 1 {
		t.Fatalf("%d scaled objects", len(keda))
	}
	for name, query := range map[string]string{"HPA": metric.Metric.Name, "KEDA": keda[0].Spec.Triggers[0].Metadata.Query} {
		if !strings.Contains(query, "waterclock_queue_overdue_seconds") {
			t.Errorf("%s scales on %s", name, query)
		}
	}
	for _, dir := range []string{"hpa", "keda"} {
		all, _ := build(t, dir)
		if worker := one[*appsv1.Deployment](t, all, "waterclock-worker"); worker.Spec.Replicas != nil {
			t.Errorf("%s: every apply would set the workers back to %d", dir, *worker.Spec.Replicas)
		}
	}
	if target := metric.Metric.Selector.MatchLabels["queue"]; target != "push" || keda[0].Spec.ScaleTargetRef.Name != "waterclock-worker" {
		t.Error("they scale something else")
	}
}

// drainSeconds is how long a worker takes to stop, at most.
func drainSeconds(t *testing.T) int64 {
	t.Helper()
	m := regexp.MustCompile(`const shutdownTimeout = (\d+) \* time.Second`).FindStringSubmatch(read(t, "../../cmd/worker/sender.go"))
	last := regexp.MustCompile(`const lastPatience = (\d+) \* time.Second`).FindStringSubmatch(read(t, "../../queue/internal/worker/stop.go"))
	if m == nil || last == nil {
		t.Fatal("the worker's timeouts are somewhere else")
	}
	var handlers, patience int64
	fmt.Sscan(m[1], &handlers)
	fmt.Sscan(last[1], &patience)
	return handlers + 3*patience // it waits so three times: for handlers, for returns, and to leave
}
