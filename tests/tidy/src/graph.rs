use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::repository_root;

/// The dependency graph that cargo resolves for Linux, without dev-dependencies.
#[derive(Debug)]
pub struct Graph {
    names: BTreeMap<String, String>,
    /// Name and manifest of each package of the workspace.
    members: Vec<(String, String)>,
    edges: BTreeMap<String, Vec<String>>,
}

impl Graph {
    /// Asks `cargo metadata`. Fails when cargo does not answer with the document that it promises.
    pub fn resolve() -> std::io::Result<Self> {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version=1", "--locked", "--filter-platform=x86_64-unknown-linux-gnu"])
            .current_dir(repository_root())
            .output()?;
        if !output.status.success() {
            return Err(std::io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let names = list(&metadata["packages"]).iter().map(|p| (text(&p["id"]), text(&p["name"]))).collect();
        let shipped = |dep: &&Value| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].as_str() != Some("dev"));
        let own = list(&metadata["workspace_members"]);
        let packages = list(&metadata["packages"]);
        let members = packages.iter().filter(|p| own.contains(&p["id"]));
        let members = members.map(|p| (text(&p["name"]), text(&p["manifest_path"]))).collect();
        let edges = list(&metadata["resolve"]["nodes"])
            .iter()
            .map(|node| {
                let targets = list(&node["deps"]).iter().filter(shipped).map(|dep| text(&dep["pkg"])).collect();
                (text(&node["id"]), targets)
            })
            .collect();
        Ok(Self { names, members, edges })
    }

    /// The names of the packages that are compiled for `package` with its default features, near and far. Asks `cargo
    /// tree`, which drops what no enabled feature reaches; the resolve graph of the metadata keeps it.
    pub fn dependencies(&self, package: &str) -> std::io::Result<BTreeSet<String>> {
        Ok(names(&tree(package, &[])?, package))
    }

    /// The same with all features of `package`.
    pub fn dependencies_of_all_features(&self, package: &str) -> std::io::Result<BTreeSet<String>> {
        Ok(names(&tree(package, &["--all-features"])?, package))
    }

    /// The packages that are compiled on this host for `package` with its default features, itself included, each as its
    /// name and its version.
    pub fn packages(&self, package: &str) -> std::io::Result<BTreeSet<String>> {
        let tree = tree(package, &[])?;
        let words = tree.lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" "));
        Ok(words.filter(|line| !line.is_empty()).collect())
    }

    /// The names of the packages of the workspace that name `dependency` directly.
    pub fn direct_users(&self, dependency: &str) -> BTreeSet<&str> {
        let is = |id: &String| self.names.get(id).is_some_and(|name| name == dependency);
        let users = self.edges.iter().filter(|(_, targets)| targets.iter().any(is));
        let names = users.filter_map(|(id, _)| self.names.get(id)).map(String::as_str);
        names.filter(|name| self.members.iter().any(|(member, _)| member == name)).collect()
    }

    /// The names of the packages of the workspace that lie in this folder.
    pub fn members_in(&self, folder: &str) -> BTreeSet<String> {
        let root = repository_root().canonicalize().unwrap_or_default().join(folder);
        let inside = self.members.iter().filter(|(_, manifest)| Path::new(manifest).starts_with(&root));
        inside.map(|(name, _)| name.clone()).collect()
    }

    /// Whether the workspace holds `package`.
    pub fn contains(&self, package: &str) -> bool {
        self.names.values().any(|name| name == package)
    }
}

/// The packages that are compiled for `package`, one a line, some of them several times.
fn tree(package: &str, more: &[&str]) -> std::io::Result<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--edges=no-dev", "--prefix=none", "--format={p}", "--package", package])
        .args(more)
        .current_dir(repository_root())
        .output()?;
    if !output.status.success() {
        return Err(std::io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn names(tree: &str, package: &str) -> BTreeSet<String> {
    let names = tree.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| *name != package);
    names.map(str::to_owned).collect()
}
