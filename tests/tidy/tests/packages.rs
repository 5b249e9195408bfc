//! What a registry, and a user who has nothing of this workspace, get to see of the published crates.

#![allow(clippy::unwrap_used, reason = "what cannot be read fails the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use portcullis_tidy::repository_root;
use serde_json::Value;

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

/// The crates that are published: what lies in `sdk/`.
fn packages(metadata: &Value) -> Vec<&Value> {
    let sdk = repository_root().canonicalize().unwrap().join("sdk");
    let manifest = |package: &Value| PathBuf::from(package["manifest_path"].as_str().unwrap());
    metadata["packages"].as_array().unwrap().iter().filter(|package| manifest(package).starts_with(&sdk)).collect()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}

#[test]
fn every_published_crate_says_what_it_is() {
    for package in packages(&metadata()) {
        let name = name(package);
        assert!(package["publish"].is_null(), "{name} lies in sdk/, and cannot be published: it has `publish = false`");
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
    let metadata = metadata();
    let names: Vec<&str> = packages(&metadata).into_iter().map(name).collect();
    arguments.extend(names.iter().flat_map(|name| ["--package", *name]));
    cargo(&arguments, &repository_root());
    for name in names {
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
        let name = name(package);
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
    let name = name(package);
    let path = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("user-of-{name}{}", features.replace(['"', '/'], "-")));
    let manifest = format!(
        "[package]\nname = \"user-of-{name}\"\nedition = \"2024\"\n\n[dependencies]\n\
         {name} = {{ path = \"{}\", default-features = false, features = [{features}] }}\n\
         k8s-openapi = {{ version = \"*\", default-features = false, features = [\"v1_33\"] }}\n\n[workspace]\n",
        path.display()
    );
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    fs::write(folder.join("src/lib.rs"), "").unwrap();
    // The versions that the workspace was built with.
    fs::copy(repository_root().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    folder
}
