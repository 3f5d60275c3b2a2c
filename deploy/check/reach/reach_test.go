package reach

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// The model: two namespaces, one of them with a label, and a host beyond the cluster.
func model(t *testing.T, policies ...string) Cluster {
	t.Helper()
	c := Cluster{Namespaces: map[string]labels.Set{"shop": {}, "ops": {"team": "ops"}}}
	for _, text := range policies {
		var p networkingv1.NetworkPolicy
		if err := yaml.UnmarshalStrict([]byte("metadata: {name: policy, namespace: shop}\nspec: "+text), &p); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		c.Policies = append(c.Policies, &p)
	}
	return c
}

func pod(namespace, app string) Pod {
	return Pod{
		Namespace: namespace, Labels: labels.Set{"app": app}, Address: netip.MustParseAddr("10.1.0.7"),
		Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}, {Name: "names", ContainerPort: 5353, Protocol: corev1.ProtocolUDP}},
	}
}

func TestReaches(t *testing.T) {
	web, db := pod("shop", "web"), pod("shop", "db")
	opsWeb, opsDB, outside := pod("ops", "web"), pod("ops", "db"), Pod{Address: netip.MustParseAddr("192.0.2.1")}
	const deny = `{podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress]}`
	tests := []struct {
		name     string
		policies []string
		from, to Pod
		protocol corev1.Protocol
		port     int32
		want     bool
	}{
		{"nothing is selected", nil, opsWeb, db, "TCP", 1, true},
		{"another pod is selected", []string{deny}, opsDB, web, "TCP", 1, true},
		{"a pod of another namespace is not", []string{deny}, web, opsDB, "TCP", 1, true},
		{"no rules allow nothing", []string{deny}, web, db, "TCP", 1, false},
		{"nor from outside", []string{deny}, outside, db, "TCP", 1, false},
		{"ingress says nothing of egress", []string{deny}, db, web, "TCP", 1, true},
		{"no types and no egress rules: ingress", []string{`{podSelector: {}}`}, web, outside, "TCP", 1, true},
		{"no types and no egress rules: ingress only", []string{`{podSelector: {}}`}, opsWeb, web, "TCP", 1, false},
		{"no types and egress rules: both", []string{`{podSelector: {}, ingress: [{}], egress: [{ports: [{port: 5}]}]}`}, web, db, "TCP", 6, false},
		{"an empty rule allows all", []string{`{podSelector: {}, ingress: [{}]}`}, outside, db, "UDP", 7, true},
		{"an empty pod selector selects all", []string{`{podSelector: {}, policyTypes: [Egress]}`}, db, web, "TCP", 1, false},
		{"policies add up", []string{deny, `{podSelector: {}, ingress: [{ports: [{port: 1}]}]}`}, web, db, "TCP", 1, true},
		{"whatever their order", []string{`{podSelector: {}, ingress: [{ports: [{port: 1}]}]}`, deny}, web, db, "TCP", 1, true},
		{"rules add up", []string{`{podSelector: {}, ingress: [{ports: [{port: 1}]}, {ports: [{port: 2}]}]}`}, web, db, "TCP", 2, true},
		{"egress must allow, too", []string{`{podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{}]}`}, web, db, "TCP", 1, false},
		{"ingress must allow, too", []string{`{podSelector: {}, policyTypes: [Ingress, Egress], egress: [{}]}`}, web, db, "TCP", 1, false},
		{"both allow", []string{`{podSelector: {}, policyTypes: [Ingress, Egress], egress: [{}], ingress: [{}]}`}, web, db, "TCP", 1, true},

		{"pods of the policy's namespace", []string{`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`}, web, db, "TCP", 1, true},
		{"and of no other", []string{`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`}, opsWeb, db, "TCP", 1, false},
		{"another pod", []string{`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`}, db, db, "TCP", 1, false},
		{"an empty peer selector is the namespace", []string{`{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}`}, db, web, "TCP", 1, true},
		{"and of no other namespace", []string{`{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}`}, opsDB, web, "TCP", 1, false},
		{"all namespaces", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}`}, opsDB, web, "TCP", 1, true},
		{"which outside is not", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}`}, outside, web, "TCP", 1, false},
		{"a namespace by a label", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: ops}}}]}]}`}, opsDB, web, "TCP", 1, true},
		{"not its own", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: ops}}}]}]}`}, db, web, "TCP", 1, false},
		{"a namespace by its name", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ops}}}]}]}`}, opsDB, web, "TCP", 1, true},
		{"one peer: both selectors", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: ops}}, podSelector: {matchLabels: {app: web}}}]}]}`}, opsWeb, db, "TCP", 1, true},
		{"one peer: the pod is another", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: ops}}, podSelector: {matchLabels: {app: web}}}]}]}`}, opsDB, db, "TCP", 1, false},
		{"one peer: the namespace is another", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: ops}}, podSelector: {matchLabels: {app: web}}}]}]}`}, web, db, "TCP", 1, false},
		{"two peers: either, by namespace", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: ops}}}, {podSelector: {matchLabels: {app: web}}}]}]}`}, opsDB, db, "TCP", 1, true},
		{"two peers: either, by pod", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: ops}}}, {podSelector: {matchLabels: {app: web}}}]}]}`}, web, db, "TCP", 1, true},
		{"an expression", []string{`{podSelector: {}, ingress: [{from: [{podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [web]}]}}]}]}`}, web, db, "TCP", 1, false},

		{"a port of TCP, by default", []string{`{podSelector: {}, ingress: [{ports: [{port: 8080}]}]}`}, web, db, "TCP", 8080, true},
		{"not of UDP", []string{`{podSelector: {}, ingress: [{ports: [{port: 8080}]}]}`}, web, db, "UDP", 8080, false},
		{"not another one", []string{`{podSelector: {}, ingress: [{ports: [{port: 8080}]}]}`}, web, db, "TCP", 8081, false},
		{"all ports of a protocol", []string{`{podSelector: {}, ingress: [{ports: [{protocol: UDP}]}]}`}, web, db, "UDP", 9, true},
		{"and of no other", []string{`{podSelector: {}, ingress: [{ports: [{protocol: UDP}]}]}`}, web, db, "TCP", 9, false},
		{"a range", []string{`{podSelector: {}, ingress: [{ports: [{port: 10, endPort: 20}]}]}`}, web, db, "TCP", 20, true},
		{"beyond a range", []string{`{podSelector: {}, ingress: [{ports: [{port: 10, endPort: 20}]}]}`}, web, db, "TCP", 21, false},
		{"a port by name", []string{`{podSelector: {}, ingress: [{ports: [{port: web}]}]}`}, opsWeb, db, "TCP", 8080, true},
		{"the name of another port", []string{`{podSelector: {}, ingress: [{ports: [{port: web}]}]}`}, opsWeb, db, "TCP", 9090, false},
		{"a name that the pod has not", []string{`{podSelector: {}, ingress: [{ports: [{port: metrics}]}]}`}, opsWeb, db, "TCP", 8080, false},
		{"a name of another protocol", []string{`{podSelector: {}, ingress: [{ports: [{port: names}]}]}`}, opsWeb, db, "TCP", 5353, false},
		{"a name of UDP", []string{`{podSelector: {}, ingress: [{ports: [{port: names, protocol: UDP}]}]}`}, opsWeb, db, "UDP", 5353, true},
		{"the name of a port is that of where it goes", []string{`{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: web}]}]}`}, web, Pod{Namespace: "ops"}, "TCP", 8080, false},

		{"an address", []string{`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 192.0.2.0/24}}]}]}`}, web, outside, "TCP", 1, true},
		{"another address", []string{`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 198.51.100.0/24}}]}]}`}, web, outside, "TCP", 1, false},
		{"except some", []string{`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 192.0.0.0/16, except: [192.0.2.0/28]}}]}]}`}, web, outside, "TCP", 1, false},
		{"except others", []string{`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 192.0.0.0/16, except: [192.0.3.0/28]}}]}]}`}, web, outside, "TCP", 1, true},
		{"an address of nobody", []string{`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}`}, web, Pod{Namespace: "shop"}, "TCP", 1, false},
	}
	for _, tt := range tests {
		got, err := model(t, tt.policies...).Reaches(tt.from, tt.to, tt.protocol, tt.port)
		if err != nil || got != tt.want {
			t.Errorf("%s: %v, %v; want %v", tt.name, got, err, tt.want)
		}
	}
}

// What is invalid is named.
func TestInvalid(t *testing.T) {
	for _, text := range []string{
		`{podSelector: {matchExpressions: [{key: app, operator: Is}]}}`,
		`{podSelector: {}, ingress: [{from: [{podSelector: {matchExpressions: [{key: app, operator: In}]}}]}]}`,
		`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: app, operator: In}]}}]}]}`,
		`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.1.0.0}}]}]}`,
	} {
		got, err := model(t, text).Reaches(pod("shop", "web"), pod("shop", "db"), "TCP", 1)
		if got || err == nil || !strings.Contains(err.Error(), "network policy shop/policy: ") {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}
