//! K4, K5: what is committed under deploy/ is what the binary generates.

use std::{path::Path, process::Command};

#[test]
fn the_committed_manifests_are_what_is_generated() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let output = Command::new(env!("CARGO_BIN_EXE_mcp-operator"))
        // As the Makefile's `generate`.
        .args(["generate", "operator", "--image", "localhost/portcullis/mcp-operator:latest"])
        .args(["--format", "kustomize", "--check", "--out"])
        .arg(deploy)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
