//! What a registry, and a user who has nothing of this workspace, get to see of the published crates.

#![allow(clippy::unwrap_used, reason = "what cannot be read fails the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use portcullis_tidy::repository_root;
use serde_json::Value;

/// The crates that are published: those without `publish = false` under `sdk/`, and no others.
const PUBLISHED: [&str; 6] = [
    "portcullis",
    "portcullis-convert",
    "portcullis-manifest",
    "portcullis-pki",
    "portcullis-review",
    "portcullis-testing",
];

fn metadata() -> Value {
    let output = cargo(&["metadata", "--format-version=1", "--no-deps", "--locked"], &repository_root());
    serde_json::from_str(&output).unwrap()
}

/// Runs cargo, and shows what it said when it fails. The network is left alone: everything was fetched to build this.
fn cargo(arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`cargo {}` in {} fails:\n{said}", arguments.join(" "), folder.display());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn packages(metadata: &Value) -> Vec<&Value> {
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.filter(|package| PUBLISHED.contains(&package["name"].as_str().unwrap())).collect()
}

#[test]
fn what_lies_in_sdk_is_published_and_nothing_else_is() {
    let metadata = metadata();
    for package in metadata["packages"].as_array().unwrap() {
        let (name, manifest) = (package["name"].as_str().unwrap(), package["manifest_path"].as_str().unwrap());
        let in_sdk =
            Path::new(manifest).strip_prefix(repository_root().canonicalize().unwrap()).unwrap().starts_with("sdk");
        assert_eq!(PUBLISHED.contains(&name), in_sdk, "{name} is published, or lies in sdk/, but not both");
        // mcp/ ships binaries in images.
        let kept = package["publish"] == serde_json::json!([]);
        assert!(!in_sdk || !kept, "{name} cannot be published: it has `publish = false`");
    }
}

#[test]
fn every_published_crate_says_what_it_is() {
    for package in packages(&metadata()) {
        let name = &package["name"];
        for field in ["description", "license", "readme", "rust_version"] {
            assert!(
                package[field].as_str().is_some_and(|text| !text.is_empty()),
                "{name} has no {field} in Cargo.toml"
            );
        }
        for list in ["keywords", "categories"] {
            let entries = package[list].as_array().map_or(0, Vec::len);
            assert!((1..=5).contains(&entries), "{name} has {entries} {list}; registries take one to five");
        }
        let readme = Path::new(package["manifest_path"].as_str().unwrap()).with_file_name("README.md");
        assert!(readme.is_file(), "{name} has no README.md");
    }
}

/// Without building the packages: cargo would build each alone, and `k8s-openapi` wants a binary to say which Kubernetes
/// it is for. The next test builds them as such a binary would.
#[test]
fn every_published_crate_can_be_packaged() {
    let target = format!("--target-dir={}", env!("CARGO_TARGET_TMPDIR"));
    let mut arguments = vec!["package", "--offline", "--locked", "--no-verify", "--allow-dirty", "--quiet", &target];
    arguments.extend(PUBLISHED.iter().flat_map(|name| ["--package", name]));
    cargo(&arguments, &repository_root());
    for name in PUBLISHED {
        let file =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("package/{name}-{}.crate", env!("CARGO_PKG_VERSION")));
        let bytes = file.metadata().unwrap().len();
        assert!(bytes < 1_000_000, "the package of {name} has {bytes} bytes; what is in it that nobody needs?");
    }
}

/// Each alone, and with each of its features alone, as the only dependency of somebody else's crate: in the workspace,
/// another crate may switch on what one forgot to ask for.
#[test]
fn every_published_crate_and_each_of_its_features_compiles_alone() {
    for package in packages(&metadata()) {
        let name = package["name"].as_str().unwrap();
        let features = package["features"].as_object().unwrap().keys();
        let alone = features.filter(|feature| *feature != "default").map(|feature| format!("{feature:?}"));
        for features in std::iter::once(String::new()).chain(alone) {
            let folder = user_of(package, &features);
            let target = format!("--target-dir={}", repository_root().join("target").display());
            cargo(&["check", "--offline", "--quiet", &target], &folder);
            println!("{name} compiles alone with [{features}]");
        }
    }
}

/// A crate outside of the workspace that depends on the package, with these features and no others.
fn user_of(package: &Value, features: &str) -> PathBuf {
    let name = package["name"].as_str().unwrap();
    let path = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("user-of-{name}{}", features.replace(['"', '/'], "-")));
    let manifest = format!(
        "[package]\nname = \"user-of-{name}\"\nedition = \"2024\"\n\n[dependencies]\n\
         {name} = {{ path = {path:?}, default-features = false, features = [{features}] }}\n\
         k8s-openapi = {{ version = \"*\", default-features = false, features = [\"v1_33\"] }}\n\n[workspace]\n"
    );
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    fs::write(folder.join("src/lib.rs"), "").unwrap();
    // The versions that the workspace was built with.
    fs::copy(repository_root().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    folder
}
