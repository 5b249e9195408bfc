//! Test binaries, as cargo reports them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

/// A test binary of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binary {
    /// The target's name; for unit tests the package's, with the kind of target where it has several.
    pub(crate) name: String,
    /// The package's folder: tests run in it, as `cargo test` runs them.
    pub(crate) folder: PathBuf,
    pub(crate) executable: PathBuf,
}

/// Compiles what is not fresh and lists every test binary.
pub(crate) fn compile() -> anyhow::Result<Vec<Binary>> {
    let output = Command::new("cargo")
        .args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("cargo cannot be started")?;
    ensure!(output.status.success(), "the tests do not compile: see above");
    Ok(listed(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads cargo's JSON messages, one per line.
fn listed(messages: &str) -> Vec<Binary> {
    messages.lines().filter_map(|line| binary(&serde_json::from_str(line).ok()?)).collect()
}

fn binary(message: &Value) -> Option<Binary> {
    let executable = message["executable"].as_str().filter(|_| message["profile"]["test"] == true)?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let target = message["target"]["name"].as_str()?;
    let name = match message["target"]["kind"][0].as_str()? {
        "test" => target.to_owned(),
        "lib" => format!("{target} (unit)"),
        kind => format!("{target} ({kind}, unit)"),
    };
    Some(Binary { name, folder: folder.to_owned(), executable: executable.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_test_executables_are_listed() {
        let artifact = |name: &str, kind: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/sdk/pki/Cargo.toml","target":{{"name":"{name}","kind":["{kind}"]}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let messages = [
            artifact("portcullis_pki", "lib", false, "null"),
            artifact("portcullis_pki", "lib", true, r#""/t/pki-1""#),
            artifact("operator", "bin", false, r#""/t/operator""#),
            artifact("operator", "bin", true, r#""/t/operator-2""#),
            artifact("pki", "test", true, r#""/t/pki-3""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let found = listed(&messages.join("\n"));
        let names: Vec<&str> = found.iter().map(|binary| binary.name.as_str()).collect();
        assert_eq!(names, ["portcullis_pki (unit)", "operator (bin, unit)", "pki"]);
        assert!(found.iter().all(|binary| binary.folder == Path::new("/w/sdk/pki")));
    }
}
