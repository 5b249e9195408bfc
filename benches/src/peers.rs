//! The servers and proxies of others, which `peers/build.sh` builds.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

/// The binary of the peer in the folder `peers/<name>`, which must be built.
pub fn binary(name: &str) -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/build.sh");
    let output = Command::new(&script).args([name, "where"]).output()?;
    let path = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    ensure!(path.is_file(), "{name} is not built: run {} {name}", script.display());
    Ok(path)
}
