package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// world is what rules are made of.
type world struct {
	pods       []*core.Pod
	namespaces []*core.Namespace
	policies   []*networking.NetworkPolicy
}

// rules is a table of the packet filter, in the language of nft. The same world gives the same rules.
//
// Packets between pods pass the hook after kube-proxy has put a pod in the place of a Service. The node's own packets do not pass it.
func (w *world) rules() (string, error) {
	byName := func(a, b meta.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	}
	w.pods = slices.DeleteFunc(w.pods, func(pod *core.Pod) bool {
		ended := pod.Status.Phase == core.PodSucceeded || pod.Status.Phase == core.PodFailed
		return ended || pod.Status.PodIP == "" || pod.Spec.HostNetwork
	})
	slices.SortFunc(w.pods, func(a, b *core.Pod) int { return byName(a, b) })
	slices.SortFunc(w.policies, func(a, b *networking.NetworkPolicy) int { return byName(a, b) })
	var chains, jumps strings.Builder
	for number, pod := range w.pods {
		allowed, isolated, err := w.allowed(pod)
		if err != nil {
			return "", err
		}
		if !isolated {
			continue
		}
		fmt.Fprintf(&chains, "  # %s/%s\n  chain pod-%d {\n", pod.Namespace, pod.Name, number)
		for _, match := range allowed {
			fmt.Fprintf(&chains, "    %s return\n", match)
		}
		// Whoever calls learns of it at once, as "no route to host", and not by waiting.
		chains.WriteString("    reject with icmp type admin-prohibited\n  }\n")
		fmt.Fprintf(&jumps, "    ip daddr %s jump pod-%d\n", pod.Status.PodIP, number)
	}
	return "add table ip network-policies\ndelete table ip network-policies\ntable ip network-policies {\n" + chains.String() +
		"  chain forward {\n    type filter hook forward priority filter + 10; policy accept;\n    ct state established,related accept\n" +
		jumps.String() + "  }\n}\n", nil
}

// allowed are the matches of what comes in to a pod, and whether any policy isolates it.
func (w *world) allowed(pod *core.Pod) (matches []string, isolated bool, err error) {
	for _, policy := range w.policies {
		selected, err := selects(&policy.Spec.PodSelector, pod.Labels)
		if err != nil {
			return nil, false, err
		}
		ingress := len(policy.Spec.PolicyTypes) == 0 || slices.Contains(policy.Spec.PolicyTypes, networking.PolicyTypeIngress)
		if !selected || !ingress || policy.Namespace != pod.Namespace {
			continue
		}
		isolated = true
		for _, rule := range policy.Spec.Ingress {
			sources, err := w.sources(policy.Namespace, rule.From)
			if err != nil {
				return nil, false, err
			}
			for _, source := range sources {
				for _, port := range ports(pod, rule.Ports) {
					matches = append(matches, strings.TrimSpace(source+" "+port))
				}
			}
		}
	}
	return matches, isolated, nil
}

// sources are the matches of where packets come from. No peer means everybody.
func (w *world) sources(namespace string, peers []networking.NetworkPolicyPeer) (matches []string, err error) {
	if len(peers) == 0 {
		return []string{""}, nil
	}
	for _, peer := range peers {
		if block := peer.IPBlock; block != nil {
			if strings.Contains(block.CIDR, ":") {
				continue // Pods have no addresses of IPv6 here.
			}
			match := "ip saddr " + block.CIDR
			if len(block.Except) > 0 {
				match += " ip saddr != { " + strings.Join(block.Except, ", ") + " }"
			}
			matches = append(matches, match)
			continue
		}
		var addresses []string
		for _, pod := range w.pods {
			in, err := w.inNamespace(namespace, peer.NamespaceSelector, pod.Namespace)
			if err != nil {
				return nil, err
			}
			selected := peer.PodSelector == nil
			if !selected {
				if selected, err = selects(peer.PodSelector, pod.Labels); err != nil {
					return nil, err
				}
			}
			if in && selected {
				addresses = append(addresses, pod.Status.PodIP)
			}
		}
		if len(addresses) > 0 {
			matches = append(matches, "ip saddr { "+strings.Join(addresses, ", ")+" }")
		}
	}
	return matches, nil
}

// inNamespace says whether a peer's namespaces have this one among them. Without a selector it is the policy's own.
func (w *world) inNamespace(own string, selector *meta.LabelSelector, candidate string) (bool, error) {
	if selector == nil {
		return candidate == own, nil
	}
	for _, namespace := range w.namespaces {
		if namespace.Name == candidate {
			return selects(selector, namespace.Labels)
		}
	}
	return false, nil
}

// ports are the matches of where packets go to in a pod. No port means every port.
func ports(pod *core.Pod, open []networking.NetworkPolicyPort) (matches []string) {
	if len(open) == 0 {
		return []string{""}
	}
	for _, port := range open {
		protocol := core.ProtocolTCP
		if port.Protocol != nil {
			protocol = *port.Protocol
		}
		name := strings.ToLower(string(protocol))
		switch {
		case port.Port == nil:
			matches = append(matches, "meta l4proto "+name)
		case port.Port.Type == intstr.String:
			for _, number := range named(pod, port.Port.StrVal, protocol) {
				matches = append(matches, fmt.Sprintf("%s dport %d", name, number))
			}
		case port.EndPort != nil:
			matches = append(matches, fmt.Sprintf("%s dport %d-%d", name, port.Port.IntVal, *port.EndPort))
		default:
			matches = append(matches, fmt.Sprintf("%s dport %d", name, port.Port.IntVal))
		}
	}
	return matches
}

// named are the ports that a pod's containers declare under a name.
func named(pod *core.Pod, name string, protocol core.Protocol) (numbers []int32) {
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, port := range container.Ports {
			if port.Name == name && port.Protocol == protocol {
				numbers = append(numbers, port.ContainerPort)
			}
		}
	}
	return numbers
}

func selects(selector *meta.LabelSelector, of map[string]string) (bool, error) {
	parsed, err := meta.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, err
	}
	return parsed.Matches(labels.Set(of)), nil
}
