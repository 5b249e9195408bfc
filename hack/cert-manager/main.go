// Command cert-manager runs the real cert-manager controllers, of its published module, in one process: the CA
// injector, and what issues certificates from Issuers of type CA and self-signed. Its own programs are not published.
//
// Usage: cert-manager KUBECONFIG CRDS, where CRDS is a directory of manifests, which it installs. It runs until it is
// killed. It has no webhook, no ACME, no leader election.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/cert-manager/cert-manager/pkg/api"
	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "cert-manager:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 3 {
		return fmt.Errorf("usage: cert-manager KUBECONFIG CRDS")
	}
	kubeconfig, crds := os.Args[1], os.Args[2]
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(klog.Background())

	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{crds}, ErrorIfPathMissing: true}); err != nil {
		return err
	}
	// The injector's field manager is what its user agent says before the slash.
	config.UserAgent, config.QPS = "cert-manager-cainjector/test", -1
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgo.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme, api.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	injectors := map[string]bool{
		"mutatingwebhookconfiguration": true, "validatingwebhookconfiguration": true, "customresourcedefinition": true,
	}
	options := cainjector.SetupOptions{EnableCertificatesDataSource: true, EnabledReconcilersFor: injectors}
	if err := cainjector.RegisterAllInjectors(ctx, manager, options); err != nil {
		return err
	}

	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:       kubeconfig,
		KubernetesAPIQPS: 500, KubernetesAPIBurst: 1000,
		IssuerOptions: controller.IssuerOptions{ClusterResourceNamespace: "cert-manager"},
	})
	if err != nil {
		return err
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	ended := make(chan error, len(controller.Known())+1)
	names := []string{}
	for name := range controller.Known() {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		constructed, err := controller.Known()[name](factory)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		go func() {
			if err := constructed.Run(2, ctx); err != nil {
				ended <- fmt.Errorf("%s: %w", name, err)
			}
		}()
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	go func() { ended <- manager.Start(ctx) }()
	klog.InfoS("running", "controllers", names)
	return <-ended
}
