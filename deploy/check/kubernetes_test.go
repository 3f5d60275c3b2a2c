package check

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The pods of workers and of serve may do no more than they need, have the memory that they are known to take, and stop
// without being killed.
func TestPods(t *testing.T) {
	objects := build(t, "base")
	for _, name := range []string{"waterclock-worker", "waterclock-serve"} {
		deployment := one[*appsv1.Deployment](t, objects, name)
		pod := deployment.Spec.Template.Spec
		c := pod.Containers[0]
		security := c.SecurityContext
		if !*pod.SecurityContext.RunAsNonRoot || !*security.ReadOnlyRootFilesystem || *security.AllowPrivilegeEscalation ||
			!slices.Contains(security.Capabilities.Drop, "ALL") || *pod.AutomountServiceAccountToken {
			t.Errorf("%s may do more than it needs", name)
		}
		environment := make(map[string]corev1.EnvVar)
		for _, e := range c.Env {
			environment[e.Name] = e
		}
		if from := environment["WATERCLOCK_REDIS"].ValueFrom; from == nil || from.SecretKeyRef == nil {
			t.Errorf("%s: Redis's URL, which may hold a password, comes from no secret", name)
		}
		if !c.Resources.Limits.Cpu().IsZero() {
			t.Errorf("%s: a limit on CPU delays starts", name)
		}
		collects, err := resource.ParseQuantity(strings.TrimSuffix(environment["GOMEMLIMIT"].Value, "B"))
		limit := c.Resources.Limits.Memory().Value()
		if share := 100 * collects.Value() / max(limit, 1); err != nil || share < 80 || share > 95 {
			t.Errorf("%s: GOMEMLIMIT %s is %d %% of the limit, want 80 to 95: %v", name, environment["GOMEMLIMIT"].Value, share, err)
		}
		if c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
			t.Error("liveness must not depend on Redis, and readiness must")
		}
		rolling := deployment.Spec.Strategy.RollingUpdate
		if rolling.MaxUnavailable.IntValue() != 0 || rolling.MaxSurge.IntValue() != 1 {
			t.Errorf("%s is not replaced one by one, a new one first", name)
		}
		budget := one[*policyv1.PodDisruptionBudget](t, objects, name).Spec.MaxUnavailable
		if n := budget.IntValue(); n < 1 || n >= int(*deployment.Spec.Replicas) {
			t.Errorf("%s: of %d at most %d may be evicted at once: no node can be drained, or none is left", name, *deployment.Spec.Replicas, n)
		}
	}
	worker := one[*appsv1.Deployment](t, objects, "waterclock-worker")
	if grace := *worker.Spec.Template.Spec.TerminationGracePeriodSeconds; grace <= drainSeconds(t) {
		t.Errorf("%d s of grace, and a worker takes %d s to stop", grace, drainSeconds(t))
	}
	serve := one[*appsv1.Deployment](t, objects, "waterclock-serve").Spec.Template.Spec.Containers[0]
	token := serve.Env[1]
	if token.Name != "WATERCLOCK_TOKEN" || token.ValueFrom.SecretKeyRef.Key != "token" || !*token.ValueFrom.SecretKeyRef.Optional {
		t.Errorf("no token for the HTTP API: %+v", token)
	}
	policies := one[*corev1.ConfigMap](t, objects, "waterclock-policies")
	if policies.Data["policies.yaml"] != read(t, "../../examples/policies.yaml") {
		t.Error("the policies are not examples/policies.yaml: run go generate")
	}
}

// Workers are scaled on what is overdue, never on what waits; and what each serve exports is not added up.
func TestScaling(t *testing.T) {
	hpa := one[*autoscalingv2.HorizontalPodAutoscaler](t, build(t, "hpa"), "waterclock-worker")
	metric := hpa.Spec.Metrics[0].External
	if metric.Metric.Name != "waterclock_queue_overdue_seconds" || metric.Metric.Selector.MatchLabels["queue"] != "push" || hpa.Spec.ScaleTargetRef.Name != "waterclock-worker" {
		t.Errorf("the HPA scales %s on %+v", hpa.Spec.ScaleTargetRef.Name, metric.Metric)
	}
	keda := one[*ScaledObject](t, build(t, "keda"), "waterclock-worker")
	if query := keda.Spec.Triggers[0].Metadata.Query; query != `max(waterclock_queue_overdue_seconds{queue="push"})` || keda.Spec.ScaleTargetRef.Name != "waterclock-worker" {
		t.Errorf("KEDA scales %s on %s", keda.Spec.ScaleTargetRef.Name, query)
	}
	for _, dir := range []string{"hpa", "keda"} {
		if worker := one[*appsv1.Deployment](t, build(t, dir), "waterclock-worker"); worker.Spec.Replicas != nil {
			t.Errorf("%s: every apply would set the workers back to %d", dir, *worker.Spec.Replicas)
		}
	}
}

// With the Prometheus operator there are PodMonitors of ports that the pods have, and the alarms; and nothing is read
// twice, because of annotations.
func TestMonitoring(t *testing.T) {
	objects := decode(t, kustomized(t, "testdata/monitored"))
	for _, name := range []string{"waterclock-worker", "waterclock-serve"} {
		pod := one[*appsv1.Deployment](t, objects, name).Spec.Template
		for key := range pod.Annotations {
			if strings.HasPrefix(key, "prometheus.io/") {
				t.Errorf("%s has the annotation %s: its metrics would be read twice", name, key)
			}
		}
		if plain := one[*appsv1.Deployment](t, build(t, "base"), name).Spec.Template; len(plain.Annotations) != 2 {
			t.Errorf("the base's %s has the annotations %v", name, plain.Annotations)
		}
		for _, endpoint := range one[*monitoringv1.PodMonitor](t, objects, name).Spec.PodMetricsEndpoints {
			if port := pod.Spec.Containers[0].Ports[0]; *endpoint.Port != port.Name || endpoint.Path != "/metrics" {
				t.Errorf("the PodMonitor reads %s at %s%s, and the port is %s", name, *endpoint.Port, endpoint.Path, port.Name)
			}
		}
	}
	var alarms struct{ Groups any }
	parse(t, []byte(read(t, "../prometheus/alerts.yaml")), &alarms)
	var rules struct{ Groups any }
	spec := one[*monitoringv1.PrometheusRule](t, objects, "waterclock").Spec
	parse(t, marshal(t, spec), &rules)
	if fmt.Sprint(rules) != fmt.Sprint(alarms) {
		t.Error("the alarms are not those of deploy/prometheus/alerts.yaml: run go generate")
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
