//! ARCHITECTURE.md and CONTRIBUTING.md on the sources.

use std::path::Path;

use portcullis_tidy::{sources, tracked_files};

pub(crate) fn rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "rs")
}

/// Shipped library code: no tests, no binaries' main, not the crates that exist for tests.
fn library(path: &str) -> bool {
    rust(path)
        && path.contains("/src/")
        && !path.ends_with("main.rs")
        && !path.ends_with("tests.rs")
        && !path.contains("/tests/")
        && !path.contains("/bin/")
        && !["tests/", "sdk/testing/", "benches/", "docs/", "fuzz/"].iter().any(|test| path.starts_with(test))
}

fn assert_absent(needles: &[&str], wanted: impl Fn(&str) -> bool, why: &str) {
    let found: Vec<String> = sources(wanted)
        .unwrap()
        .iter()
        .flat_map(|source| {
            let code = source.shipped_code();
            let hits = needles.iter().filter(|needle| code.contains(*needle));
            hits.map(|needle| format!("{}: {needle}", source.path)).collect::<Vec<_>>()
        })
        .collect();
    assert!(found.is_empty(), "{why}:\n{}", found.join("\n"));
}

#[test]
fn no_whole_object_put_exists() {
    assert_absent(
        &[".replace_status(", "Api::replace", "PostParams::default(), &updated"],
        |path| library(path) && (path.starts_with("mcp/operator") || path.starts_with("sdk/")),
        "a PUT erases what others own; server-side apply what is ours",
    );
}

#[test]
fn libraries_read_no_environment() {
    // A crate with a main reads it once, at start; clap does so for flags with `env`.
    let binaries: Vec<String> =
        tracked_files().unwrap().iter().filter_map(|p| p.strip_suffix("main.rs").map(str::to_owned)).collect();
    let wanted = |path: &str| library(path) && !binaries.iter().any(|binary| path.starts_with(binary));
    assert_absent(&["env::var(", "env::var_os(", "env::vars("], wanted, "take it as a parameter; binaries read flags");
}

#[test]
fn sans_io_crates_ask_no_clock() {
    let sans_io = [
        "sdk/review/",
        "sdk/convert/",
        "sdk/pki/",
        "sdk/manifest/",
        "mcp/wire/",
        "mcp/runconfig/",
        "mcp/api/",
        "mcp/plan/",
        "mcp/authz/",
        "mcp/matcher/",
    ];
    assert_absent(
        &["Timestamp::now()", "Instant::now()", "SystemTime::now()"],
        |path| library(path) && sans_io.iter().any(|krate| path.starts_with(krate)),
        "time is a parameter",
    );
}

#[test]
fn leases_have_their_time_from_the_clock_that_they_were_given() {
    assert_absent(
        &["Timestamp::now()", "Instant::now()", "SystemTime::now()", "tokio::time::sleep", "tokio::time::timeout"],
        |path| library(path) && path.starts_with("sdk/lease/") && path != "sdk/lease/src/time.rs",
        "ask the `Clock`: a test has to be able to stop it",
    );
}

/// A module that decides is a function of what was observed; another one reads and writes.
#[test]
fn decisions_of_leases_and_of_doctor_do_no_io() {
    let pure = ["decide", "elector", "handovers", "law", "ownership", "record", "timing", "scopes/view"];
    let wanted = |path: &str| {
        let lease = path.strip_prefix("sdk/lease/src/").and_then(|path| path.strip_suffix(".rs"));
        lease.is_some_and(|module| pure.contains(&module)) || path.starts_with("sdk/doctor/src/checks/")
    };
    assert!(sources(|path| rust(path) && wanted(path)).unwrap().len() > pure.len(), "the files have other names now");
    let marks = ["async ", ".await", "tokio::", "kube::Client", "Api<", "std::fs", "std::net::Tcp"];
    assert_absent(&marks, |path| rust(path) && wanted(path), "hand in what was seen");
}

/// Crates of users, and a program of tests with a lock of its own, which are no members of the workspace.
const OUTSIDE: [&str; 4] = [
    "examples/axum-application/Cargo.toml",
    "examples/plain-controller/Cargo.toml",
    "examples/webhook-server/Cargo.toml",
    "mcp/runner/tests/sdks/rust/Cargo.toml",
];

#[test]
fn every_crate_has_the_lints_of_the_workspace() {
    let manifests = sources(|path| path.ends_with("Cargo.toml")).unwrap();
    let root = manifests.iter().find(|source| source.path == "Cargo.toml").unwrap();
    assert!(root.text.contains("unsafe_code = \"forbid\""));
    let inside = |path: &str| path != "Cargo.toml" && !OUTSIDE.contains(&path);
    for manifest in manifests.iter().filter(|source| inside(&source.path)) {
        assert!(manifest.text.contains("[lints]\nworkspace = true"), "{} has its own lints", manifest.path);
    }
}

#[test]
fn versions_live_in_the_workspace_table_only() {
    for manifest in sources(|path| path.ends_with("/Cargo.toml") && !OUTSIDE.contains(&path)).unwrap() {
        for line in manifest.text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase())) {
            let own = ["name", "description", "publish", "readme", "path"];
            let word = line.split_once(" = \"").map(|(key, _)| key).filter(|key| !key.contains(' '));
            // A path alone pins nothing: it breaks a cycle between crates and their tests.
            let pinned = line.contains("version = \"") || word.is_some_and(|key| !own.contains(&key));
            assert!(!pinned || line.starts_with("required-features"), "{}: {line}", manifest.path);
        }
    }
}

#[test]
fn a_file_fits_one_head() {
    for source in sources(rust).unwrap() {
        let lines = source.text.lines().count();
        assert!(lines <= 600, "{} has {lines} lines; split it by concept", source.path);
    }
}

#[test]
fn no_test_is_ignored_and_nothing_is_unfinished() {
    let marks = [concat!("#[igno", "re"), concat!("to", "do!("), concat!("unimpl", "emented!(")];
    for source in sources(rust).unwrap() {
        for mark in marks {
            assert!(!source.text.contains(mark), "{} has {mark}", source.path);
        }
    }
}

/// On wall time, such a test fails whenever its machine stalls.
#[test]
fn upper_bounds_on_time_are_measured_by_a_stopwatch() {
    let bound = |line: &str| line.contains("assert!(") && line.contains(".elapsed() <");
    let measured = |text: &str| text.contains("Stopwatch") || text.contains("start_paused");
    let found: Vec<String> = sources(rust)
        .unwrap()
        .iter()
        .filter(|source| source.text.lines().any(bound) && !measured(&source.text))
        .map(|source| source.path.clone())
        .collect();
    assert!(found.is_empty(), "measure with `portcullis_testing::Stopwatch`, or wait for a condition: {found:?}");
}

#[test]
fn every_make_target_that_the_readme_names_exists() {
    let files = sources(|path| path == "README.md" || path == "Makefile" || path == "CONTRIBUTING.md").unwrap();
    let makefile = files.iter().find(|file| file.path == "Makefile").unwrap();
    for document in files.iter().filter(|file| file.path != "Makefile") {
        for rest in document.text.split("make ").skip(1) {
            let target: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
            let code = document.text.contains(&format!("`make {target}`"));
            assert!(!code || makefile.text.contains(&format!("\n{target}:")), "{} names make {target}", document.path);
        }
    }
}

#[test]
fn modules_have_names_that_say_what_they_hold() {
    let vague = ["utils.rs", "util.rs", "common.rs", "helpers.rs", "misc.rs"];
    let found: Vec<_> =
        tracked_files().unwrap().into_iter().filter(|p| vague.iter().any(|v| p.ends_with(&format!("/{v}")))).collect();
    assert!(found.is_empty(), "{found:?}");
}
