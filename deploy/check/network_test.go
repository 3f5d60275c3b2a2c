package check

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/waterclock/waterclock/deploy/check/chart"
	"github.com/waterclock/waterclock/deploy/check/reach"
)

// twoReleases returns the resources of two queues in one namespace: of the kustomization, and of a release of the chart.
func twoReleases(t *testing.T) []runtime.Object {
	t.Helper()
	mail := template(t, "mail", chart.Values{"queue": "mail", "autoscaling": chart.Values{"by": "keda"}, "monitoring": chart.Values{"enabled": true}})
	return append(decode(t, kustomized(t, "testdata/monitored")), decode(t, mail)...)
}

// pods are those of two queues, of their namespace, of others, and hosts outside of the cluster.
func pods(t *testing.T, objects []runtime.Object) map[string]reach.Pod {
	t.Helper()
	models := map[string]reach.Pod{
		"redis":      {Namespace: chart.Namespace, Labels: labels.Set{"app": "redis"}},
		"impostor":   {Namespace: chart.Namespace, Labels: labels.Set{"app.kubernetes.io/name": "other", "app.kubernetes.io/component": "worker"}},
		"client":     {Namespace: chart.Namespace, Labels: labels.Set{"app": "shop", "waterclock-client": "true"}},
		"stranger":   {Namespace: "shop", Labels: labels.Set{"app": "shop"}},
		"producer":   {Namespace: "shop", Labels: labels.Set{"app": "shop", "waterclock-client": "true"}},
		"refused":    {Namespace: "shop", Labels: labels.Set{"app": "shop", "waterclock-client": "false"}},
		"lookalike":  {Namespace: "shop", Labels: labels.Set{"app.kubernetes.io/name": "waterclock", "app.kubernetes.io/instance": "waterclock", "app.kubernetes.io/component": "serve"}},
		"prometheus": {Namespace: "monitoring", Labels: labels.Set{"app": "prometheus"}},
		"database":   {Namespace: "data", Labels: labels.Set{"app": "redis"}},
		"dns":        {Namespace: "kube-system", Labels: labels.Set{"k8s-app": "kube-dns"}},
		"node-dns":   {Address: netip.MustParseAddr("169.254.20.10")},
		"provider":   {Address: netip.MustParseAddr("192.0.2.7")},
	}
	for _, d := range all[*appsv1.Deployment](objects) {
		models[strings.TrimPrefix(d.Name, "waterclock-")] = reach.Pod{
			Namespace: d.Namespace, Labels: d.Spec.Template.Labels, Ports: d.Spec.Template.Spec.Containers[0].Ports,
		}
	}
	return models
}

// Who may reach what: nobody else does.
func TestNetworkPolicies(t *testing.T) {
	objects := twoReleases(t)
	cluster := reach.Cluster{Policies: all[*networkingv1.NetworkPolicy](objects)}
	models := pods(t, objects)
	everybody := strings.Join(slices.Sorted(maps.Keys(models)), " ")
	others := without(everybody, "worker", "serve", "mail-worker", "mail-serve")
	for _, tt := range []struct {
		to       string
		protocol corev1.Protocol
		port     int32
		from     string
	}{
		// The metrics of workers: Prometheus. Those of serve, too; and producers, in any namespace, its API.
		{"worker", "TCP", 9090, "prometheus"},
		{"mail-worker", "TCP", 9090, "prometheus"},
		{"serve", "TCP", 9091, "client producer prometheus"},
		{"mail-serve", "TCP", 9091, "client producer prometheus"},
		{"worker", "TCP", 22, ""},
		{"serve", "TCP", 6379, ""},
		{"serve", "UDP", 9091, ""},

		// The policies touch no other pod: not Redis beside them, nor one with some of their labels.
		{"redis", "TCP", 6379, everybody},
		{"redis", "TCP", 26379, everybody},
		{"redis", "TCP", 9121, others},
		{"impostor", "TCP", 9090, others},
		{"client", "TCP", 80, others},
		{"lookalike", "TCP", 9091, others},
		{"prometheus", "TCP", 9090, others},

		// What workers and serve reach: Redis anywhere, DNS, and providers over TLS.
		{"database", "TCP", 6379, everybody},
		{"database", "TCP", 6380, everybody},
		{"database", "TCP", 26379, everybody},
		{"database", "TCP", 5432, others},
		{"dns", "UDP", 53, everybody},
		{"dns", "TCP", 53, everybody},
		{"node-dns", "UDP", 53, everybody},
		{"provider", "TCP", 443, everybody},
		{"provider", "TCP", 6380, everybody}, // a Redis that somebody else runs
		{"provider", "TCP", 80, others},
	} {
		var from []string
		for name, pod := range models {
			allowed, err := cluster.Reaches(pod, models[tt.to], tt.protocol, tt.port)
			if err != nil {
				t.Fatal(err)
			}
			if allowed {
				from = append(from, name)
			}
		}
		slices.Sort(from)
		if got := strings.Join(from, " "); got != tt.from {
			t.Errorf("%s:%d of %s is reached by\n%s, want\n%s", tt.protocol, tt.port, tt.to, got, tt.from)
		}
	}
}

// without returns words without some of them.
func without(words string, some ...string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(words), func(w string) bool { return slices.Contains(some, w) }), " ")
}

// Each selector selects the pods that it is about, and no others: not those of another queue, nor those of other programs.
func TestSelectors(t *testing.T) {
	objects := twoReleases(t)
	models := pods(t, objects)
	selected := make(map[string]string)
	selects := func(kind string, of metav1.Object, selector *metav1.LabelSelector) {
		s, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for name, pod := range models {
			if pod.Namespace == of.GetNamespace() && s.Matches(pod.Labels) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		selected[kind+" "+of.GetName()] = strings.Join(names, " ")
	}
	for _, d := range all[*appsv1.Deployment](objects) {
		selects("Deployment", d, d.Spec.Selector)
		for _, spread := range d.Spec.Template.Spec.TopologySpreadConstraints {
			selects("Spread", d, spread.LabelSelector)
		}
	}
	for _, s := range all[*corev1.Service](objects) {
		selects("Service", s, &metav1.LabelSelector{MatchLabels: s.Spec.Selector})
		if pod := models[strings.TrimPrefix(s.Name, "waterclock-")]; s.Spec.Ports[0].TargetPort.StrVal != pod.Ports[0].Name || s.Spec.Ports[0].Port != pod.Ports[0].ContainerPort {
			t.Errorf("the service %s leads to %+v, and its pods have %+v", s.Name, s.Spec.Ports, pod.Ports)
		}
	}
	for _, b := range all[*policyv1.PodDisruptionBudget](objects) {
		selects("Budget", b, b.Spec.Selector)
	}
	for _, m := range all[*monitoringv1.PodMonitor](objects) {
		selects("Monitor", m, &m.Spec.Selector)
		if m.Spec.NamespaceSelector.Any || len(m.Spec.NamespaceSelector.MatchNames) > 0 {
			t.Errorf("the PodMonitor %s looks into other namespaces", m.Name)
		}
	}
	for _, p := range all[*networkingv1.NetworkPolicy](objects) {
		selects("Policy", p, &p.Spec.PodSelector)
	}
	want := map[string]string{
		"Policy waterclock": "serve worker", "Policy waterclock-api": "serve",
		"Policy mail": "mail-serve mail-worker", "Policy mail-api": "mail-serve",
		"Service waterclock-serve": "serve", "Service mail-serve": "mail-serve",
	}
	for _, kind := range []string{"Deployment", "Spread", "Budget", "Monitor"} {
		for name, pod := range map[string]string{"waterclock-worker": "worker", "waterclock-serve": "serve", "mail-worker": "mail-worker", "mail-serve": "mail-serve"} {
			want[kind+" "+name] = pod
		}
	}
	for name := range maps.Keys(want) {
		if selected[name] != want[name] {
			t.Errorf("%s selects %q, want %q", name, selected[name], want[name])
		}
	}
	if len(selected) != len(want) {
		t.Errorf("%d selectors, want %d: %q", len(selected), len(want), slices.Sorted(maps.Keys(selected)))
	}
}
