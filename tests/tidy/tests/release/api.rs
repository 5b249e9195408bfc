//! The public API of each published crate is the one that was committed in `api/`: a change of it is seen, and meant.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use portcullis_tidy::{published, repository_root};
use serde_json::Value;

use crate::metadata::{docs_rs, library, name, nightly_rustdoc, target_folder, texts};

/// The format of rustdoc's JSON that `public-api` reads: the minor version of `rustdoc-types` in Cargo.lock.
const FORMAT: u64 = 57;
/// The number of lines of a difference that are shown.
const SHOWN: usize = 40;
const ACCEPT: &str = "`UPDATE_API=1 cargo test --workspace --test release api` accepts it";

#[test]
fn the_public_api_of_every_published_crate_is_the_committed_one() {
    let folder = repository_root().join("tests/tidy/api");
    let listed = listed();
    if std::env::var_os("UPDATE_API").is_some_and(|value| value == "1") {
        write(&folder, &listed);
        return;
    }
    let committed = committed(&folder);
    let crates: BTreeSet<&String> = listed.keys().chain(committed.keys()).collect();
    let differences: Vec<String> = crates
        .into_iter()
        .filter_map(|name| match (committed.get(name), listed.get(name)) {
            (Some(before), Some(now)) => {
                let lines = difference(before, now);
                (!lines.is_empty()).then(|| format!("The public API of {name} changes:\n{}", shown(&lines)))
            }
            (None, _) => Some(format!("There is no tests/tidy/api/{name}.txt.")),
            (Some(_), None) => Some(format!("tests/tidy/api/{name}.txt is of no published crate.")),
        })
        .collect();
    assert!(differences.is_empty(), "{}\n{ACCEPT}. Describe the change in CHANGELOG.md.", differences.join("\n"));
}

/// The items of each library, one to a line.
fn listed() -> BTreeMap<String, String> {
    let packages: Vec<Value> = published().unwrap().into_iter().filter(|package| library(package).is_some()).collect();
    // One build for all that are documented alike: their dependencies have the same features then, and are compiled
    // once.
    let mut alike: BTreeMap<Vec<String>, Vec<&str>> = BTreeMap::new();
    for package in &packages {
        alike.entry(features(package)).or_default().push(name(package));
    }
    for (features, names) in alike {
        document(&names, &features);
    }
    let list = |package: &Value| (name(package).to_owned(), items(&json(&library(package).unwrap())));
    packages.iter().map(list).collect()
}

/// All features, unless the crate names some to docs.rs. What it names of its dependencies is a version of Kubernetes.
fn features(package: &Value) -> Vec<String> {
    let docs = docs_rs(package);
    let own = texts(&docs["features"]).into_iter().filter(|feature| !feature.contains('/'));
    let own: Vec<String> = own.map(|feature| format!("--features={}/{feature}", name(package))).collect();
    if docs["all-features"] == true || own.is_empty() {
        return vec!["--all-features".to_owned()];
    }
    let default = (docs["no-default-features"] == true).then(|| "--no-default-features".to_owned());
    default.into_iter().chain(own).collect()
}

/// Has rustdoc write JSON, in a target folder of its own: it stands where the pages of `cargo doc` would.
fn document(names: &[&str], features: &[String]) {
    let output = Command::new(env!("CARGO"))
        .args(["doc", "--no-deps", "--lib", "--locked", "--quiet"])
        .args(names.iter().map(|name| format!("--package={name}")))
        .args(features)
        .current_dir(repository_root())
        .env("CARGO_TARGET_DIR", target_folder().join("api"))
        .env("CARGO_INCREMENTAL", "0")
        .env("RUSTDOC", nightly_rustdoc())
        .env("RUSTDOCFLAGS", "-Z unstable-options --output-format json")
        // Libraries choose no version; what builds them does.
        .env("K8S_OPENAPI_ENABLED_VERSION", "1.33")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "rustdoc fails for {names:?} with {features:?}:\n{said}");
}

fn json(library: &str) -> PathBuf {
    target_folder().join("api/doc").join(library).with_extension("json")
}

fn items(json: &Path) -> String {
    let document: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let format = document["format_version"].as_u64().unwrap();
    assert_eq!(format, FORMAT, "rustdoc writes another format: take the release of `public-api` that reads it");
    // Blanket impls exist for every type, and auto traits follow from the fields.
    let builder = public_api::Builder::from_rustdoc_json(json).omit_blanket_impls(true).omit_auto_trait_impls(true);
    builder.build().unwrap().to_string()
}

fn committed(folder: &Path) -> BTreeMap<String, String> {
    let files = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    files
        .map(|file| (file.file_stem().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(file).unwrap()))
        .collect()
}

fn write(folder: &Path, listed: &BTreeMap<String, String>) {
    fs::create_dir_all(folder).unwrap();
    for gone in committed(folder).keys().filter(|name| !listed.contains_key(*name)) {
        fs::remove_file(folder.join(gone).with_extension("txt")).unwrap();
    }
    for (name, items) in listed {
        fs::write(folder.join(name).with_extension("txt"), items).unwrap();
    }
}

/// The lines that only one of two lists has: those that go, then those that come.
fn difference(before: &str, now: &str) -> Vec<String> {
    let only = |these: &str, those: &str, mark: char| -> Vec<String> {
        let mut others: Vec<&str> = those.lines().collect();
        let mut missing = Vec::new();
        for line in these.lines() {
            match others.iter().position(|other| *other == line) {
                Some(at) => _ = others.swap_remove(at),
                None => missing.push(format!("  {mark} {line}")),
            }
        }
        missing
    };
    [only(before, now, '-'), only(now, before, '+')].concat()
}

fn shown(lines: &[String]) -> String {
    let more = lines.len().saturating_sub(SHOWN);
    let end = if more > 0 { format!("\n  and {more} more lines") } else { String::new() };
    lines[..lines.len() - more].join("\n") + &end
}

#[test]
fn a_difference_counts_every_line_that_only_one_side_has() {
    let table: [(&str, &str, &[&str]); 4] = [
        ("a\nb\n", "b\na\n", &[]),
        ("a\nb\n", "a\nc\n", &["  - b", "  + c"]),
        ("a\na\n", "a\n", &["  - a"]),
        ("", "a\n", &["  + a"]),
    ];
    for (before, now, expected) in table {
        assert_eq!(difference(before, now), expected, "{before:?} {now:?}");
    }
    let long: Vec<String> = (0..=SHOWN).map(|line| line.to_string()).collect();
    assert!(shown(&long).ends_with("  and 1 more lines"));
}
