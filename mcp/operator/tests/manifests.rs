//! K4, K5: what is committed under deploy/ is what the binary generates.

use std::{path::Path, process::Command};

#[test]
fn the_committed_manifests_are_what_is_generated() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    for what in ["crds", "rbac", "webhooks"] {
        let output = Command::new(env!("CARGO_BIN_EXE_mcp-operator"))
            .args(["generate", what, "--check", "--out"])
            .arg(deploy.join(what))
            .output()
            .unwrap();
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
