//! The published crates as a registry gets them, and a user who has nothing of this workspace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use portcullis_tidy::{published, repository_root};
use serde_json::Value;

use crate::metadata::{docs_rs, library, name, nightly_rustdoc, target_folder, texts};

/// The number of lines of cargo's output that a failure shows.
const SHOWN: usize = 40;

/// Packages are tried without the workspace, where another crate may enable a feature that one needs: each is compiled
/// as the only dependency of a crate, with each of its features alone, and documented as docs.rs does it.
#[test]
fn each_published_crate_stands_alone() {
    let packages: Vec<Package> = published().unwrap().into_iter().map(Package::new).collect();
    // A crate that nothing in the workspace enables may not have been fetched yet; from here on, the network is not
    // used.
    cargo(&["fetch", "--locked", "--quiet"], &repository_root()).unwrap();
    pack(&packages);
    for package in &packages {
        package.unpack(&packages);
    }
    let failures: Vec<String> = packages.iter().flat_map(|package| package.failures(&packages)).collect();
    assert!(failures.is_empty(), "{} of these fail:\n\n{}", failures.len(), failures.join("\n\n"));
}

/// Packs all of them in one call: a package is resolved against those that are packed with it, not against a registry.
fn pack(packages: &[Package]) {
    let folder = folder();
    let target = format!("--target-dir={}", folder.display());
    let mut arguments = vec!["package", "--offline", "--locked", "--no-verify", "--allow-dirty", "--quiet", &target];
    arguments.extend(packages.iter().flat_map(|package| ["--package", &package.name]));
    cargo(&arguments, &repository_root()).unwrap();
    for package in packages {
        let bytes = package.archive().metadata().unwrap().len();
        assert!(bytes < 1_000_000, "the package of {} has {bytes} bytes; which files does no user need?", package.name);
    }
}

struct Package {
    name: String,
    version: String,
    metadata: Value,
}

impl Package {
    fn new(metadata: Value) -> Self {
        let version = metadata["version"].as_str().unwrap().to_owned();
        Self { name: name(&metadata).to_owned(), version, metadata }
    }

    fn archive(&self) -> PathBuf {
        folder().join("package").join(format!("{}-{}.crate", self.name, self.version))
    }

    fn unpacked(&self) -> PathBuf {
        folder().join("unpacked").join(&self.name)
    }

    fn unpack(&self, all: &[Self]) {
        let fresh = tempfile::tempdir_in(folder()).unwrap();
        let tar = Command::new("tar").arg("-xzf").arg(self.archive()).arg("-C").arg(fresh.path()).status().unwrap();
        assert!(tar.success(), "tar cannot unpack {}", self.archive().display());
        let package = fresh.path().join(format!("{}-{}", self.name, self.version));
        assert!(package.join("LICENSE").is_file(), "the package of {} has no LICENSE", self.name);
        let manifest = package.join("Cargo.toml");
        let text = fs::read_to_string(&manifest).unwrap();
        fs::write(&manifest, format!("{text}\n{}", own_workspace(all))).unwrap();
        // The versions that the workspace was built with.
        fs::copy(repository_root().join("Cargo.lock"), package.join("Cargo.lock")).unwrap();
        take_over(&package, &self.unpacked());
    }

    /// The failures, each with the end of cargo's output.
    fn failures(&self, all: &[Self]) -> Vec<String> {
        let mut failures = Vec::new();
        let mut attempt = |what: &str, arguments: &[&str], folder: &Path| {
            println!("{} {what}", self.name);
            if let Err(said) = cargo(arguments, folder) {
                println!("no: {said}");
                failures.push(format!("{} {what}:\n{said}", self.name));
            }
        };
        let check = ["check", "--offline", "--quiet"];
        let library = library(&self.metadata);
        if let Some(library) = &library {
            let user = self.user(library, all);
            for features in feature_sets(&features(&self.metadata)) {
                let what = format!("compiles with {features:?}");
                let features = features.iter().map(|feature| format!("--features={}/{feature}", self.name));
                let features: Vec<String> = features.collect();
                attempt(&what, &[&check[..], &refs(&features)].concat(), &user);
            }
        }
        if self.metadata["targets"].as_array().unwrap().iter().any(|target| target["kind"][0] == "bin") {
            attempt("compiles as `cargo install` does it", &[&check[..], &["--bins"]].concat(), &self.unpacked());
        }
        if library.is_some() {
            let arguments = self.documented();
            attempt("is documented as on docs.rs", &refs(&arguments), &self.unpacked());
        }
        failures
    }

    /// Whether a dependent has to choose a version of Kubernetes.
    fn needs_kubernetes(&self) -> bool {
        let tree = ["tree", "--offline", "--locked", "--all-features", "--edges=no-dev", "--prefix=none", "--package"];
        let tree = cargo(&[&tree[..], &[&self.name]].concat(), &repository_root()).unwrap();
        tree.lines().any(|line| line.starts_with("k8s-openapi "))
    }

    /// A crate that depends on the package, with the features that its command line says and no others.
    fn user(&self, library: &str, all: &[Self]) -> PathBuf {
        let name = &self.name;
        let folder = folder().join("users").join(name);
        fs::create_dir_all(folder.join("src")).unwrap();
        let kubernetes = "k8s-openapi = { version = \"*\", default-features = false, features = [\"v1_33\"] }\n";
        let manifest = format!(
            "[package]\nname = \"user-of-{name}\"\nedition = \"2024\"\n\n[dependencies]\n\
             {name} = {{ path = \"{}\", default-features = false }}\n{}\n{}",
            self.unpacked().display(),
            if self.needs_kubernetes() { kubernetes } else { "" },
            own_workspace(all)
        );
        fs::write(folder.join("Cargo.toml"), manifest).unwrap();
        fs::write(folder.join("src/lib.rs"), format!("pub use ::{library};\n")).unwrap();
        fs::copy(repository_root().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
        folder
    }

    /// The arguments of cargo by which docs.rs documents the package, but that a link that leads nowhere is an error.
    fn documented(&self) -> Vec<String> {
        let docs = docs_rs(&self.metadata);
        let flags = ["all-features", "no-default-features"].into_iter().filter(|flag| docs[*flag] == true);
        let mut arguments: Vec<String> = ["rustdoc", "--offline", "--quiet", "--lib"].map(str::to_owned).to_vec();
        arguments.extend(flags.map(|flag| format!("--{flag}")));
        arguments.extend(texts(&docs["features"]).iter().map(|feature| format!("--features={feature}")));
        arguments.extend(texts(&docs["cargo-args"]));
        arguments.extend(["--", "--cfg", "docsrs", "-D", "rustdoc::broken_intra_doc_links"].map(str::to_owned));
        arguments.extend(texts(&docs["rustdoc-args"]));
        arguments
    }
}

fn folder() -> PathBuf {
    let folder = target_folder().join("packages");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The end of a manifest of a crate that belongs to no workspace around it, and takes our crates from where they are
/// unpacked.
fn own_workspace(all: &[Package]) -> String {
    let patch = |package: &Package| format!("{} = {{ path = \"{}\" }}", package.name, package.unpacked().display());
    let patches: Vec<String> = all.iter().map(patch).collect();
    format!("[workspace]\n\n[patch.crates-io]\n{}\n", patches.join("\n"))
}

/// Makes a folder the same as a fresh one. A file that is as it was keeps its time, by which cargo sees what to
/// compile.
fn take_over(fresh: &Path, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let entries = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    for old in entries(folder).filter(|old| !fresh.join(old.file_name()).exists()) {
        let path = old.path();
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }
    for new in entries(fresh) {
        let to = folder.join(new.file_name());
        if new.path().is_dir() {
            take_over(&new.path(), &to);
        } else {
            let bytes = fs::read(new.path()).unwrap();
            if fs::read(&to).ok().as_ref() != Some(&bytes) {
                fs::write(to, bytes).unwrap();
            }
        }
    }
}

/// The features of a package, each with what it switches on.
fn features(package: &Value) -> BTreeMap<String, Vec<String>> {
    package["features"].as_object().unwrap().iter().map(|(name, on)| (name.clone(), texts(on))).collect()
}

/// With which features a package is compiled: with none, with its defaults, with each alone, and with all. Of those
/// that switch on the same, one stays.
fn feature_sets(features: &BTreeMap<String, Vec<String>>) -> Vec<Vec<String>> {
    let alone = features.keys().filter(|name| *name != "default").map(|name| vec![name.clone()]);
    let default = features.contains_key("default").then(|| vec!["default".to_owned()]);
    let all = features.keys().cloned().collect();
    let sets = std::iter::once(Vec::new()).chain(default).chain(alone).chain([all]);
    let mut seen = BTreeSet::new();
    sets.filter(|set| seen.insert(switched_on(set, features))).collect()
}

/// The features of a set, and what they switch on, near and far.
fn switched_on(set: &[String], features: &BTreeMap<String, Vec<String>>) -> BTreeSet<String> {
    let mut on = BTreeSet::new();
    let mut next = set.to_vec();
    while let Some(feature) = next.pop() {
        if on.insert(feature.clone()) {
            next.extend(features.get(&feature).into_iter().flatten().cloned());
        }
    }
    on.remove("default");
    on
}

fn refs(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

/// Runs cargo, with one target folder for all, and gives its output. An error is the end of what it said.
fn cargo(arguments: &[&str], folder: &Path) -> Result<String, String> {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", self::folder().join("target"))
        .env("CARGO_INCREMENTAL", "0")
        .env("RUSTDOC", nightly_rustdoc())
        // A warning is an error, in our crates only: cargo caps the lints of others.
        .env("RUSTFLAGS", "-D warnings")
        .env_remove("RUSTDOCFLAGS")
        .env_remove("K8S_OPENAPI_ENABLED_VERSION")
        .output()
        .unwrap();
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    let end = lines[lines.len().saturating_sub(SHOWN)..].join("\n");
    Err(format!("`cargo {}` in {}:\n{end}", arguments.join(" "), folder.display()))
}

#[test]
fn features_that_switch_on_the_same_are_compiled_once() {
    let sets = |features: &[(&str, &[&str])]| {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let features = features.iter().map(|(name, on)| ((*name).to_owned(), texts(on))).collect();
        let sets = feature_sets(&features);
        sets.iter().map(|set| set.join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(sets(&[]), [""]);
    assert_eq!(sets(&[("default", &[])]), [""]);
    assert_eq!(sets(&[("a", &[])]), ["", "a"]);
    assert_eq!(sets(&[("a", &[]), ("b", &["dep:x"]), ("default", &["a", "b"])]), ["", "default", "a", "b"]);
    assert_eq!(sets(&[("a", &["b"]), ("b", &[]), ("default", &["b"])]), ["", "default", "a"]);
    assert_eq!(sets(&[("a", &[]), ("b", &[]), ("default", &[])]), ["", "a", "b", "a b default"]);
}
