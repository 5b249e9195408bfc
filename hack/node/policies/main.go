// Enforces the ingress rules of NetworkPolicies on the node, as a network plugin of a real cluster does: https://kubernetes.io/docs/concepts/services-networking/network-policies/
// No plugin that does so can be built here with the Go compiler alone. Egress rules are not enforced, and what the node itself
// sends, such as probes, always comes in.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file that names the cluster")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run writes the rules whenever they are others than before.
func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods, namespaces := factory.Core().V1().Pods(), factory.Core().V1().Namespaces()
	policies := factory.Networking().V1().NetworkPolicies()
	changes := make(chan struct{}, 1)
	changed := func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	}
	for _, informer := range []cache.SharedIndexInformer{pods.Informer(), namespaces.Informer(), policies.Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	written := ""
	for {
		var world world
		if world.pods, err = pods.Lister().List(labels.Everything()); err != nil {
			return err
		}
		if world.namespaces, err = namespaces.Lister().List(labels.Everything()); err != nil {
			return err
		}
		if world.policies, err = policies.Lister().List(labels.Everything()); err != nil {
			return err
		}
		rules, err := world.rules()
		if err != nil {
			return err
		}
		if rules != written {
			if err := write(ctx, rules); err != nil {
				return err
			}
			written = rules
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
		}
	}
}

// write puts the rules in the place of those before, in one transaction.
func write(ctx context.Context, rules string) error {
	nft := exec.CommandContext(ctx, "nft", "--file", "-")
	nft.Stdin = strings.NewReader(rules)
	if said, err := nft.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s\n%s", err, said, rules)
	}
	return nil
}
