//! ARCHITECTURE.md on the crates' dependencies.

use portcullis_tidy::{Graph, sources};

/// Crates that decide and never do: no runtime, no sockets, no client.
const SANS_IO: [&str; 10] = [
    "portcullis-review",
    "portcullis-convert",
    "portcullis-pki",
    "portcullis-manifest",
    "mcp-wire",
    "mcp-runconfig",
    "mcp-api",
    "mcp-plan",
    "mcp-authz",
    "mcp-matcher",
];
/// The crates that are built into images.
const SHIPPED: [&str; 3] = ["mcp-operator", "mcp-runner", "dynamo-webhooks"];

#[test]
fn sans_io_crates_depend_on_no_runtime_http_stack_or_client() {
    let graph = Graph::resolve().unwrap();
    for package in SANS_IO {
        assert!(graph.contains(package), "{package} is in the list but not in the workspace");
        for forbidden in ["tokio", "hyper", "kube-client", "reqwest"] {
            assert!(!graph.dependencies(package).unwrap().contains(forbidden), "{package} depends on {forbidden}");
        }
    }
}

#[test]
fn the_shipped_graph_holds_one_tls_stack() {
    let graph = Graph::resolve().unwrap();
    for package in SHIPPED {
        let dependencies = graph.dependencies(package).unwrap();
        assert!(dependencies.contains("rustls"), "{package} has no TLS at all");
        for forbidden in ["ring", "openssl-sys", "native-tls", "reqwest"] {
            assert!(!dependencies.contains(forbidden), "{package} ships {forbidden}");
        }
    }
}

#[test]
fn heavy_or_lossy_dependencies_stay_in_one_crate() {
    let graph = Graph::resolve().unwrap();
    for fenced in ["aws-sigv4", "cedar-policy", "cel", "moka", "opentelemetry", "redis", "rmcp"] {
        let users = graph.direct_users(fenced);
        assert!(users.len() <= 1, "{fenced} is used by {users:?}");
    }
    for package in SHIPPED {
        assert!(!graph.dependencies(package).unwrap().contains("rmcp"), "{package} re-encodes messages through rmcp");
    }
}

#[test]
fn the_sdk_and_its_users_do_not_depend_on_each_other() {
    let graph = Graph::resolve().unwrap();
    for (layer, others) in [("sdk", &["mcp-", "dynamo-"][..]), ("mcp", &["dynamo-"]), ("dynamo", &["mcp-"])] {
        let members = graph.members_in(layer);
        assert!(!members.is_empty(), "nothing lies in {layer}/");
        for package in members {
            let package = &*package;
            let mut dependencies = graph.dependencies_of_all_features(package).unwrap().into_iter();
            let other = dependencies.find(|name| others.iter().any(|other| name.starts_with(other)));
            assert_eq!(other, None, "{package} depends on a product that is built on it, or beside it");
        }
    }
}

#[test]
fn the_proxies_listener_brings_no_kubernetes_client() {
    let graph = Graph::resolve().unwrap();
    for package in ["portcullis-listener", "mcp-listener"] {
        for forbidden in ["kube", "kube-core", "kube-client", "k8s-openapi"] {
            assert!(!graph.dependencies(package).unwrap().contains(forbidden), "{package} depends on {forbidden}");
        }
    }
}

#[test]
fn an_sdk_crate_has_a_feature_of_the_facade_and_is_in_the_map() {
    let graph = Graph::resolve().unwrap();
    let map = sources(|path| path == "ARCHITECTURE.md").unwrap().remove(0).text;
    let behind = graph.dependencies_of_all_features("portcullis").unwrap();
    for package in graph.members_in("sdk") {
        let package = &*package;
        let wired =
            ["portcullis", "portcullis-project", "portcullis-testing"].contains(&package) || behind.contains(package);
        assert!(wired, "no feature of the facade uses {package}");
        let mapped = map.lines().any(|line| line.split_whitespace().nth(1) == Some(package));
        assert!(mapped, "{package} is not in the map of ARCHITECTURE.md");
    }
}
