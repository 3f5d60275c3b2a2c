// Package reach says which pods network policies let talk to each other, by the rules that Kubernetes documents for
// networking.k8s.io/v1:
//
//   - A pod that no policy selects for a direction is open in that direction.
//   - For a pod that some select, their rules add up: what one of them allows is allowed, everything else is not.
//   - A connection needs both: the egress of where it comes from, and the ingress of where it goes.
//   - In one peer, namespaceSelector and podSelector must both match; of several peers, one has to.
//
// A model of a cluster is its policies, its namespaces and some pods:
//
//	cluster := reach.Cluster{Policies: policies, Namespaces: map[string]labels.Set{"shop": {}}}
//	redis := reach.Pod{Namespace: "shop", Labels: labels.Set{"app": "redis"}}
//	allowed, err := cluster.Reaches(worker, redis, corev1.ProtocolTCP, 6379)
//
// It knows nothing of nodes, whose traffic to their own pods is always allowed, nor of services: a connection to a
// service is one to its pods.
package reach

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A Pod is one end of a connection. Without a namespace it is a host outside of the cluster, which has only an address.
type Pod struct {
	Namespace string
	Labels    labels.Set
	Address   netip.Addr             // invalid if it does not matter
	Ports     []corev1.ContainerPort // those that have names
}

// A Cluster is what decides who reaches whom.
type Cluster struct {
	Namespaces map[string]labels.Set // the labels of each; one that is not here has none but its name
	Policies   []*networkingv1.NetworkPolicy
}

// Reaches reports whether a pod may open a connection to a port of another one. The error says which policy has a selector
// or an address that is invalid.
func (c Cluster) Reaches(from, to Pod, protocol corev1.Protocol, port int32) (bool, error) {
	out, err := c.allows(from, to, to, protocol, port, networkingv1.PolicyTypeEgress)
	if err != nil || !out {
		return false, err
	}
	return c.allows(to, from, to, protocol, port, networkingv1.PolicyTypeIngress)
}

// allows reports whether the policies of a pod allow, in one direction, a connection with another pod to a port of
// target, which is one of the two.
func (c Cluster) allows(pod, other, target Pod, protocol corev1.Protocol, port int32, direction networkingv1.PolicyType) (bool, error) {
	selected := false
	for _, policy := range c.Policies {
		binds, err := binds(policy, pod, direction)
		if err != nil {
			return false, fmt.Errorf("network policy %s/%s: %w", policy.Namespace, policy.Name, err)
		}
		if !binds {
			continue
		}
		selected = true
		for _, rule := range rulesOf(policy, direction) {
			peer, err := c.anyPeer(policy.Namespace, rule.peers, other)
			if err != nil {
				return false, fmt.Errorf("network policy %s/%s: %w", policy.Namespace, policy.Name, err)
			}
			if peer && anyPort(rule.ports, target, protocol, port) {
				return true, nil
			}
		}
	}
	return !selected, nil
}

// binds reports whether a policy says something about a direction of a pod.
func binds(policy *networkingv1.NetworkPolicy, pod Pod, direction networkingv1.PolicyType) (bool, error) {
	types := policy.Spec.PolicyTypes
	if len(types) == 0 { // the default: ingress, and egress if there are rules for it
		types = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(policy.Spec.Egress) > 0 {
			types = append(types, networkingv1.PolicyTypeEgress)
		}
	}
	if policy.Namespace != pod.Namespace || !slices.Contains(types, direction) {
		return false, nil
	}
	return matches(&policy.Spec.PodSelector, pod.Labels)
}

// A rule is one of ingress or egress.
type rule struct {
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

func rulesOf(policy *networkingv1.NetworkPolicy, direction networkingv1.PolicyType) (rules []rule) {
	if direction == networkingv1.PolicyTypeIngress {
		for _, r := range policy.Spec.Ingress {
			rules = append(rules, rule{r.From, r.Ports})
		}
		return rules
	}
	for _, r := range policy.Spec.Egress {
		rules = append(rules, rule{r.To, r.Ports})
	}
	return rules
}

// anyPeer reports whether one of the peers of a rule, which stands in a policy of a namespace, is the pod. No peers are all.
func (c Cluster) anyPeer(namespace string, peers []networkingv1.NetworkPolicyPeer, pod Pod) (bool, error) {
	for _, peer := range peers {
		is, err := c.isPeer(namespace, peer, pod)
		if err != nil || is {
			return is, err
		}
	}
	return len(peers) == 0, nil
}

func (c Cluster) isPeer(namespace string, peer networkingv1.NetworkPolicyPeer, pod Pod) (bool, error) {
	if peer.IPBlock != nil {
		return inBlock(peer.IPBlock, pod.Address)
	}
	if pod.Namespace == "" { // no selector selects what is not in the cluster
		return false, nil
	}
	if peer.NamespaceSelector == nil {
		if pod.Namespace != namespace {
			return false, nil
		}
	} else if is, err := matches(peer.NamespaceSelector, c.namespace(pod.Namespace)); err != nil || !is {
		return false, err
	}
	if peer.PodSelector == nil {
		return true, nil
	}
	return matches(peer.PodSelector, pod.Labels)
}

// namespace returns the labels of a namespace, to which Kubernetes adds its name.
func (c Cluster) namespace(name string) labels.Set {
	return labels.Merge(c.Namespaces[name], labels.Set{corev1.LabelMetadataName: name})
}

func inBlock(block *networkingv1.IPBlock, address netip.Addr) (bool, error) {
	for i, cidr := range append([]string{block.CIDR}, block.Except...) {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return false, err
		}
		if prefix.Contains(address) != (i == 0) {
			return false, nil
		}
	}
	return true, nil
}

// anyPort reports whether one of the ports of a rule is a port of the pod that a connection goes to. No ports are all.
func anyPort(ports []networkingv1.NetworkPolicyPort, target Pod, protocol corev1.Protocol, port int32) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		if protocol != valueOr(p.Protocol, corev1.ProtocolTCP) {
			return false
		}
		switch {
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.String:
			return slices.ContainsFunc(target.Ports, func(named corev1.ContainerPort) bool {
				return named.Name == p.Port.StrVal && named.ContainerPort == port && valueOr(&named.Protocol, corev1.ProtocolTCP) == protocol
			})
		}
		return p.Port.IntVal <= port && port <= valueOr(p.EndPort, p.Port.IntVal)
	})
}

// valueOr returns what a pointer points to, or another value if that is nothing.
func valueOr[T comparable](p *T, otherwise T) T {
	var zero T
	if p == nil || *p == zero {
		return otherwise
	}
	return *p
}

// matches reports whether a selector selects labels. An empty one selects all.
func matches(selector *metav1.LabelSelector, set labels.Set) (bool, error) {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, err
	}
	return s.Matches(set), nil
}
