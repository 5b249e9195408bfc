//! Helpers for tests of crates outside of the workspace: builds the examples as their users do.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use tokio::process::{Child, Command};

/// The time that a process may take to start, to act or to end.
pub const PATIENCE: Duration = Duration::from_mins(1);
/// It compiles what of the SDK was not compiled for it yet, and waits for the builds of other tests.
const BUILD: Duration = Duration::from_mins(15);

/// Returns the path of a file or folder of this repository.
///
/// # Panics
/// When the repository is gone.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap().join(path)
}

/// Builds the crate of this name in `examples/`. Returns the folder of its binaries.
///
/// # Panics
/// As [`cargo`] does.
pub async fn built(example: &str) -> PathBuf {
    cargo(&repository("examples").join(example), &["build", "--bins"]).await
}

/// Runs cargo on the crate in a folder, as [`output_of_cargo`] does. Returns the folder of binaries.
///
/// # Panics
/// When it does not compile, or takes more than fifteen minutes.
pub async fn cargo(folder: &Path, words: &[&str]) -> PathBuf {
    let output = output_of_cargo(folder, words).await;
    assert!(output.status.success(), "{}: {}", folder.display(), String::from_utf8_lossy(&output.stderr));
    target().join("debug")
}

/// Returns the target folder of the workspace: that of the test's own binary, `<target>/debug/deps`.
fn target() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}

/// Runs cargo on the crate in a folder, into the target folder of the workspace, with the versions and the profile of the
/// workspace, so that what both depend on is compiled once.
///
/// # Panics
/// When it takes more than fifteen minutes.
pub async fn output_of_cargo(folder: &Path, words: &[&str]) -> Output {
    std::fs::copy(repository("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let target = target();
    let build = |more: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(words).arg("--quiet").args(more).arg("--target-dir").arg(&target);
        // The variables that a runner of tests sets for its own builds would have all be compiled a second time.
        for variable in ["RUSTC_BOOTSTRAP", "RUSTC_WORKSPACE_WRAPPER", "CLIPPY_ARGS"] {
            cargo.env_remove(variable);
        }
        for setting in ["profile.dev.debug='line-tables-only'", "profile.dev.package.'*'.debug=false"] {
            cargo.args(["--config", setting]);
        }
        let output = cargo.current_dir(folder).kill_on_drop(true).output();
        async { tokio::time::timeout(BUILD, output).await.expect("it is built in time").unwrap() }
    };
    let output = build(&["--offline"]).await;
    if output.status.success() {
        return output;
    }
    // A crate that the workspace does not use, such as axum, was never fetched on this machine.
    build(&[]).await
}

/// Sends SIGTERM, waits until the process has ended in order, and returns what it wrote to standard error from here on.
///
/// # Panics
/// When it fails, or takes more than a minute.
pub async fn ended(process: Child) -> String {
    let id = process.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
    let output = tokio::time::timeout(PATIENCE, process.wait_with_output()).await.expect("it ends").unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{}\n{log}", output.status);
    log
}
