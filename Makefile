# Thin on purpose: every target calls cargo or one script.
.DEFAULT_GOAL := help
.PHONY: help demo on-node tools built test release-check chance format clippy rustdoc lint deny generate docs fuzz bench control-plane cert-manager helm mcp-servers identity-providers aws images node-up node-down e2e

help: ## Say what each target does
	@echo "Portcullis: MCP servers on Kubernetes behind two gates."
	@echo
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "Start with 'make demo'. It needs Rust, Go, a C compiler and make; no cluster. 'CLUSTER=current make demo' is a guest in yours."

# Where the demo runs: own, a control plane that it starts and ends; current, the cluster of your kubeconfig; node, a real node.
CLUSTER ?= own

demo: ## Both gates at work, start to end; CLUSTER=current: as a guest in your cluster; CLUSTER=node: with real pods (root)
	@CLUSTER="$(CLUSTER)" hack/prerequisites.sh demo
	@test "$(CLUSTER)" != node || $(MAKE) --no-print-directory on-node
	@test "$(CLUSTER)" = current || hack/control-plane/build.sh
	@hack/mcp-servers/build.sh go
	@hack/identity-providers/build.sh go
	cargo build --workspace --bin mcp-operator --bin mcp-runner --bin demo
	@test "$(CLUSTER)" = node || "$${CARGO_TARGET_DIR:-target}/debug/demo" "$(CLUSTER)"
	@test "$(CLUSTER)" != node || tests/node/run.sh demo

# What `make e2e` and the demo on the node need.
on-node:
	@hack/prerequisites.sh images
	@hack/prerequisites.sh e2e
	@hack/node/up.sh --check
	@hack/control-plane/build.sh
	@hack/node/build.sh
	@hack/helm/build.sh
	@hack/images/build.sh

test: built ## Every test: unit, control plane, data plane, end to end
	"$${CARGO_TARGET_DIR:-target}/debug/suite" run

release-check: ## What is asked at a release: each published crate alone, its public API, the crates outside of the workspace, MCP's SDKs, ToolHive's decisions
	@hack/prerequisites.sh release-check
	@hack/control-plane/build.sh
	@hack/mcp-servers/build.sh sdks
	@hack/collector/build.sh
	@hack/cedar-vectors/run.sh --check
	cargo test --workspace --test release --test embedding --test sdks

# Runs under each condition of `make chance`.
RUNS ?= 5

chance: built ## Tests over and over, pinned to one CPU and beside busy loops: SUITE=a test binary (default: all), RUNS=5
	@hack/prerequisites.sh chance
	"$${CARGO_TARGET_DIR:-target}/debug/suite" chance --runs $(RUNS) $(SUITE)

# The real programs that the tests run, each built once per machine.
tools:
	@hack/prerequisites.sh test
	@hack/control-plane/build.sh
	@hack/cert-manager/build.sh
	@hack/helm/build.sh
	@hack/mcp-servers/build.sh all
	@hack/identity-providers/build.sh all
	@hack/aws/build.sh

# Targets that `make test` does not run: the tests on the node, and those of a release.
NAMED_TESTS = --test node --test operator --test second_operator --test release --test embedding --test sdks

# Binaries together with the tests: alone, their dependencies would have other features and be built a second time.
built: tools
	cargo build --workspace --bins --examples --tests

named-tests: built
	cargo build --workspace $(NAMED_TESTS)

lint: format clippy rustdoc deny ## Formatting, clippy and rustdoc, warnings as errors; what may be depended on

format:
	@hack/prerequisites.sh lint
	cargo fmt --all --check
	for example in axum-application plain-controller webhook-server; do \
		cargo fmt --check --manifest-path examples/$$example/Cargo.toml || exit 1; \
	done

# The tests on the node and those of a release are targets that are built by their name alone.
clippy:
	@hack/prerequisites.sh lint
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --workspace $(NAMED_TESTS) -- -D warnings

# With what the tests are compiled with, and without running any code.
rustdoc:
	@hack/prerequisites.sh lint
	RUSTDOC="$(CURDIR)/hack/rustdoc/check.sh" cargo test --workspace --doc --no-fail-fast --quiet

deny: ## Licences, banned crates and sources of what is depended on (deny.toml); builds cargo-deny once per machine
	@hack/prerequisites.sh deny
	@hack/deny/check.sh

# As in the workspace's Cargo.toml, and in the names of the images.
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

generate: ## Write what is generated again: manifests (deploy/), the kinds in charts/, the book's reference of flags and values
	@hack/prerequisites.sh generate
	cargo run --quiet -p mcp-operator -- generate operator --image localhost/portcullis/mcp-operator:$(VERSION) --format kustomize --out deploy
	cargo run --quiet -p mcp-operator -- generate crds --out charts/portcullis-crds/files
	cp deploy/rbac.yaml deploy/webhooks.yaml charts/portcullis/files
	cargo run --quiet -p dynamo-webhooks -- generate crds --out charts/dynamo-webhooks/files
	cargo run --quiet -p portcullis-docs

docs: ## Build the book in docs/ (its code is compiled and run by 'make test')
	@command -v mdbook >/dev/null || { echo "missing: mdbook. It makes HTML of docs/; 'cargo install mdbook' installs it. Without it, read docs/src/SUMMARY.md." >&2; exit 1; }
	mdbook build docs

fuzz: ## A million bodies through each fuzz target (minutes; 'make test' has a short run)
	@hack/prerequisites.sh fuzz
	fuzz/run.sh review
	fuzz/run.sh conversion
	fuzz/run.sh certificates
	fuzz/run.sh lease

bench: ## Webhook, proxy, operator and rotation figures, side by side in one run (takes minutes)
	@hack/prerequisites.sh bench
	@hack/control-plane/build.sh
	@hack/mcp-servers/build.sh go
	@benches/peers/build.sh controller-runtime
	@benches/peers/build.sh reverse-proxy
	cargo build --release -p mcp-operator -p mcp-runner -p portcullis-benches --bins
	cargo build --release -p portcullis-operator --example rotation_operator
	cargo run --release --quiet -p portcullis-benches --bin admission
	cargo run --release --quiet -p portcullis-benches --bin proxy
	cargo run --release --quiet -p portcullis-benches --bin proxy_load
	cargo run --release --quiet -p portcullis-benches --bin operator
	cargo run --release --quiet -p portcullis-benches --bin references
	cargo run --release --quiet -p portcullis-benches --bin rotation
	@if [ "$$(id -u)" -eq 0 ]; then hack/node/up.sh --check && hack/node/build.sh && tests/node/run.sh bench; else echo "stdio over attach is left out: the node needs root"; fi

control-plane: ## Build etcd, kube-apiserver and kube-controller-manager once per machine (about five minutes)
	@hack/prerequisites.sh control-plane
	@hack/control-plane/build.sh

cert-manager: ## Build the real cert-manager that the tests run, once per machine (about three minutes)
	@hack/prerequisites.sh cert-manager
	@hack/cert-manager/build.sh

helm: ## Build the helm that the tests of charts/ run, once per machine (about three minutes)
	@hack/prerequisites.sh helm
	@hack/helm/build.sh

mcp-servers: ## Fetch and build the real MCP servers and clients that the tests use
	@hack/prerequisites.sh mcp-servers
	@hack/mcp-servers/build.sh all

identity-providers: ## Fetch and build the real identity providers that the tests use
	@hack/prerequisites.sh identity-providers
	@hack/identity-providers/build.sh all

aws: ## Fetch moto, the stand-in for AWS that the tests run
	@hack/prerequisites.sh aws
	@hack/aws/build.sh

images: ## Build the images of both operators and of the proxy, as OCI archives with their SBOMs: target/images
	@hack/prerequisites.sh images
	@hack/images/build.sh
	@hack/images/sbom.sh

node-up: ## Bring up a cluster of one real node on this machine (kubelet, containerd, CoreDNS); needs root
	@hack/prerequisites.sh node-up
	@hack/node/up.sh --check
	@hack/control-plane/build.sh
	@hack/node/build.sh
	@hack/node/up.sh

node-down: ## End that cluster, whatever state it is in, and remove all of it
	@hack/node/down.sh

e2e: on-node ## Tests on that node, with the images of operator and proxy, their webhooks and clients in pods; needs root
	@tests/node/run.sh test
