//! The number of test binaries has a ceiling: each is linked, and each with a cluster starts one of its own.

use std::process::Command;

use portcullis_tidy::repository_root;
use serde_json::Value;

/// The most integration test binaries that `make test` runs. A new module of an existing one costs less.
const CEILING: usize = 37;

#[test]
fn integration_tests_of_a_crate_share_a_binary() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--locked"])
        .current_dir(repository_root())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let targets = metadata["packages"].as_array().unwrap().iter().flat_map(|p| p["targets"].as_array().unwrap());
    let tests = targets.filter(|target| target["kind"][0] == "test" && target["test"] == true);
    let names: Vec<&str> = tests.map(|target| target["name"].as_str().unwrap()).collect();
    assert!(names.len() > 30, "{names:?}");
    let said = "make the new one a module of its crate's binary, or say here why the ceiling rises";
    assert!(names.len() <= CEILING, "{} test binaries, {CEILING} are allowed: {said}\n{names:#?}", names.len());
}
