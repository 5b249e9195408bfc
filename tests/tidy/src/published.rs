//! The crates that are published, as cargo describes them.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::repository_root;

/// The packages of `sdk/`, from the metadata of the workspace. Fails when cargo does not answer.
pub fn published() -> std::io::Result<Vec<Value>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--locked"])
        .current_dir(repository_root())
        .output()?;
    if !output.status.success() {
        return Err(std::io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let sdk = repository_root().canonicalize()?.join("sdk");
    let manifest = |package: &Value| package["manifest_path"].as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    Ok(packages.filter(|package| Path::new(&manifest(package)).starts_with(&sdk)).cloned().collect())
}
