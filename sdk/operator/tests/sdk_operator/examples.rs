//! The binaries of the examples, which cargo builds with the tests.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

/// The example with flags and a controller.
pub(crate) const ENTITIES: &str = "controller";
/// The example with a kind in three versions.
pub(crate) const VERSIONS: &str = "versions_operator";

pub(crate) fn binary(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let binary = profile.join("examples").join(example);
    assert!(binary.is_file(), "{} is missing: run `cargo build --workspace --examples`", binary.display());
    binary
}

/// A command line that starts without what the environment of the tests would add.
pub(crate) fn command(example: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary(example));
    command.args(arguments).kill_on_drop(true).stdin(Stdio::null());
    for variable in
        ["KUBECONFIG", "POD_NAMESPACE", "POD_NAME", "WATCH_NAMESPACE", "RUST_LOG", "RUST_BACKTRACE", "HOME", "USER"]
    {
        command.env_remove(variable);
    }
    command
}
