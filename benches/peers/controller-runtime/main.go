// The same Entity webhooks as a kubebuilder project would have them, to compare with: typed validator and defaulter,
// hub and spokes, the manager's webhook server, the production logger, default options.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"log"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "portcullis.dev/benches/controller-runtime/api/v1"
	v2 "portcullis.dev/benches/controller-runtime/api/v2"
	v3 "portcullis.dev/benches/controller-runtime/api/v3"
)

type usernames struct{}

func (usernames) ValidateCreate(_ context.Context, entity *v3.Entity) (admission.Warnings, error) {
	if entity.Spec.Username == "forbidden" {
		return nil, errors.New("name may not be 'forbidden'")
	}
	return nil, nil
}

func (u usernames) ValidateUpdate(ctx context.Context, _, entity *v3.Entity) (admission.Warnings, error) {
	return u.ValidateCreate(ctx, entity)
}

func (usernames) ValidateDelete(context.Context, *v3.Entity) (admission.Warnings, error) {
	return nil, nil
}

type defaults struct{}

func (defaults) Default(_ context.Context, entity *v3.Entity) error {
	if entity.Spec.Username != "overwrite" {
		return nil
	}
	entity.Spec.Username = "random overwritten"
	if entity.Labels == nil {
		entity.Labels = make(map[string]string)
	}
	entity.Labels["entity.example.com/overwritten"] = "true"
	return nil
}

func main() {
	port := flag.Int("port", 9443, "port on 127.0.0.1")
	certs := flag.String("cert-dir", "", "folder with tls.crt and tls.key")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	go func() {
		// Whoever started this holds the other end: when it goes, so does this.
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	if err := serve(*port, *certs); err != nil {
		log.Fatal(err)
	}
}

func serve(port int, certs string) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, v2.AddToScheme, v3.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	// There is no API server; nothing here asks one.
	manager, err := ctrl.NewManager(&rest.Config{Host: "https://127.0.0.1:1"}, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                server.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		WebhookServer:          webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: certs}),
	})
	if err != nil {
		return err
	}
	// /convert comes by itself: the scheme holds a hub and its spokes.
	err = ctrl.NewWebhookManagedBy(manager, &v3.Entity{}).
		WithValidator(usernames{}).WithValidatorCustomPath("/validate/entity").
		WithDefaulter(defaults{}).WithDefaulterCustomPath("/mutate/entity").
		Complete()
	if err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}
