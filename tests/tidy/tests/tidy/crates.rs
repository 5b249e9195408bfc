//! ARCHITECTURE.md on the crates in `sdk/`: their dependencies, the number of crates that a user compiles, their size.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use portcullis_tidy::{Graph, repository_root, sources};
use serde_json::Value;

/// The folders of `sdk/` from the bottom up, each with its direct dependencies, optional ones included. A crate depends
/// on crates above it in this table only. Who adds a dependency here has asked what it costs those who choose the
/// crate.
const CRATES: [(&str, &str); 18] = [
    ("review", "base64 json-patch kube-core serde serde_json serde_path_to_error thiserror"),
    ("convert", "kube-core portcullis-review serde serde_json thiserror"),
    ("pki", "aws-lc-rs jiff pem rcgen rustls-pki-types thiserror x509-parser"),
    ("manifest", "k8s-openapi kube-core portcullis-review serde serde-saphyr serde_json thiserror"),
    ("metrics", "prometheus-client thiserror"),
    ("client", "futures kube serde"),
    (
        "lease",
        "futures jiff k8s-openapi kube portcullis-client portcullis-metrics prometheus-client serde \
         serde_json thiserror tokio tracing uuid",
    ),
    (
        "listener",
        "arc-swap bytes http-body http-body-util hyper hyper-util rustls rustls-pki-types socket2 \
         thiserror tokio tokio-rustls tokio-util tracing",
    ),
    (
        "webhook",
        "bytes futures http http-body-util hyper k8s-openapi kube-core portcullis-convert portcullis-listener \
         portcullis-manifest portcullis-metrics portcullis-review prometheus-client serde serde_json \
         thiserror tokio tower tracing",
    ),
    (
        "testing",
        "base64 http http-body-util jiff json-patch k8s-openapi kube portcullis-convert portcullis-manifest \
         portcullis-pki portcullis-webhook proptest rustls-pki-types serde serde-saphyr serde_json thiserror \
         tokio tracing tracing-subscriber uuid",
    ),
    (
        "certificates",
        "arc-swap backon futures http jiff k8s-openapi kube portcullis-client portcullis-listener \
         portcullis-manifest portcullis-metrics portcullis-pki prometheus-client rustls rustls-pki-types \
         serde serde_json thiserror tokio tokio-rustls tokio-util tracing",
    ),
    (
        "controller",
        "aws-lc-rs backon futures jiff json-patch k8s-openapi kube portcullis-client portcullis-lease \
         portcullis-manifest portcullis-metrics portcullis-review portcullis-webhook prometheus-client serde \
         serde_json thiserror tokio tokio-util tracing",
    ),
    (
        "doctor",
        "futures http jiff k8s-openapi kube portcullis-certificates portcullis-client \
         portcullis-lease portcullis-manifest portcullis-pki portcullis-webhook rustls \
         rustls-pki-types serde serde_json tokio tokio-rustls",
    ),
    ("migrate", "aws-lc-rs backon futures k8s-openapi kube portcullis-client serde serde_json thiserror tokio"),
    (
        "dev",
        "anyhow arc-swap backon clap futures http jiff k8s-openapi kube portcullis-client portcullis-listener \
         portcullis-manifest portcullis-pki portcullis-webhook rustls serde tokio tokio-util",
    ),
    (
        "operator",
        "anyhow arc-swap backon bytes clap futures http http-body-util hyper jiff k8s-openapi \
         kube portcullis-certificates portcullis-client portcullis-controller portcullis-dev portcullis-doctor \
         portcullis-lease portcullis-listener portcullis-manifest portcullis-metrics \
         portcullis-migrate portcullis-pki portcullis-webhook prometheus-client rustls serde serde-saphyr serde_json thiserror tokio tokio-util \
         tower tracing tracing-subscriber",
    ),
    (
        "portcullis",
        "k8s-openapi kube portcullis-certificates portcullis-controller portcullis-doctor portcullis-lease \
         portcullis-listener portcullis-manifest portcullis-metrics portcullis-migrate portcullis-operator \
         portcullis-webhook \
         prometheus-client",
    ),
    ("project", "clap thiserror"),
];

/// The most packages that are compiled for webhooks alone, `portcullis-webhook` included.
const WEBHOOK_PACKAGES: usize = 110;

/// The most lines that a crate may have in `src/`, without its tests.
const LINES: usize = 8_000;

fn package(folder: &str) -> String {
    if folder == "portcullis" { folder.to_owned() } else { format!("portcullis-{folder}") }
}

/// The packages of the workspace that this Cargo.toml belongs to, each with its direct dependencies: of any table
/// except those for tests.
fn direct(manifest: &str) -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--manifest-path", manifest])
        .current_dir(repository_root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{manifest}: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let shipped = |package: &Value| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        dependencies.filter(|dependency| dependency["kind"] != "dev").map(name).collect()
    };
    metadata["packages"].as_array().unwrap().iter().map(|package| (name(package), shipped(package))).collect()
}

#[test]
fn the_dependencies_of_sdk_crates_are_those_of_the_table() {
    let manifests = sources(|path| path.starts_with("sdk/") && path.ends_with("/Cargo.toml")).unwrap();
    let of_crate = |path: &str| path.split('/').count() == 3;
    let folder = |path: &str| path.split('/').nth(1).unwrap().to_owned();
    let manifests = manifests.iter().filter(|manifest| of_crate(&manifest.path));
    let found: BTreeSet<_> = manifests.map(|manifest| folder(&manifest.path)).collect();
    let listed = CRATES.iter().map(|(folder, _)| (*folder).to_owned()).collect();
    assert_eq!(found, listed, "the crates of sdk/ and those of the table");
    let direct = direct("Cargo.toml");
    for (folder, listed) in CRATES {
        let path = format!("sdk/{folder}/Cargo.toml");
        let (found, listed) = (&direct[&package(folder)], listed.split_whitespace().map(str::to_owned).collect());
        let added: Vec<_> = found.difference(&listed).collect();
        let removed: Vec<_> = listed.difference(found).collect();
        assert!(added.is_empty() && removed.is_empty(), "{path} has {added:?} in addition, and not {removed:?}");
    }
}

#[test]
fn an_example_of_one_crate_depends_on_no_other_crate_of_the_sdk() {
    let examples =
        [("plain-controller", "portcullis-controller", true), ("webhook-server", "portcullis-webhook", false)];
    for (example, only, client) in examples {
        let direct = direct(&format!("examples/{example}/Cargo.toml"));
        let direct = &direct[example];
        let ours: Vec<_> = direct.iter().filter(|name| name.starts_with("portcullis")).collect();
        assert_eq!(ours, [only], "examples/{example}");
        assert_eq!(direct.contains("kube"), client, "whether examples/{example} depends on kube");
    }
}

#[test]
fn a_crate_of_the_sdk_depends_on_those_below_it_only() {
    for (at, (folder, dependencies)) in CRATES.iter().enumerate() {
        let below: BTreeSet<_> = CRATES[..at].iter().map(|(folder, _)| package(folder)).collect();
        for dependency in dependencies.split_whitespace().filter(|name| name.starts_with("portcullis")) {
            assert!(below.contains(dependency), "{} depends on {dependency}, which is not below it", package(folder));
        }
    }
}

/// The packages that are compiled for a crate with its default features. None of them may be a client of the API
/// server.
fn without_client(package: &str) -> BTreeSet<String> {
    let packages = Graph::resolve().unwrap().packages(package).unwrap();
    assert!(packages.iter().any(|compiled| compiled.starts_with(&format!("{package} "))), "{packages:?}");
    for forbidden in ["kube ", "kube-client ", "kube-runtime "] {
        let found = packages.iter().find(|package| package.starts_with(forbidden));
        assert_eq!(found, None, "{package} compiles a client of the API server");
    }
    packages
}

#[test]
fn test_helpers_for_webhooks_compile_no_client() {
    without_client("portcullis-testing");
}

#[test]
fn webhooks_alone_compile_few_packages_and_no_client() {
    // The facade, which has them by default, is one package more.
    for (package, most) in [("portcullis-webhook", WEBHOOK_PACKAGES), ("portcullis", WEBHOOK_PACKAGES + 1)] {
        let packages = without_client(package);
        let count = packages.len();
        assert!(
            count <= most,
            "{package} compiles {count} packages, {most} are allowed:\n{}",
            packages.into_iter().collect::<Vec<_>>().join("\n")
        );
    }
}

#[test]
fn doctor_knows_nothing_of_development_sessions() {
    let folders = ["certificates", "lease", "manifest", "doctor", "controller"].map(|folder| format!("sdk/{folder}/"));
    let words = ["DEV_", "dev-session", "Development session", "development session"];
    for source in sources(|path| folders.iter().any(|folder| path.starts_with(folder))).unwrap() {
        let found = words.iter().find(|word| source.text.contains(*word));
        assert_eq!(found, None, "{}", source.path);
    }
}

#[test]
fn a_crate_of_the_sdk_fits_one_reader() {
    let of_tests = |path: &str| path.contains("/tests/") || path.ends_with("tests.rs");
    for (folder, _) in CRATES {
        let src = format!("sdk/{folder}/src/");
        let rust = |path: &str| path.rsplit('.').next() == Some("rs") && !of_tests(path);
        let files = sources(|path| path.starts_with(&src) && rust(path)).unwrap();
        let lines: usize = files.iter().map(|source| source.without_tests().lines().count()).sum();
        assert!(lines <= LINES, "{src} has {lines} lines, {LINES} are allowed; split the crate by concept");
    }
}
