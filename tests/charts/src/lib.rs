//! Helm, as a user runs it, on the charts of this repository.
//!
//! It is the program that hack/helm pins, from the per-user cache. What it keeps (its configuration, its cache) goes to
//! a folder of its own that ends with the value.

#![allow(clippy::panic, clippy::missing_panics_doc, reason = "in a test this is the failure")]

mod compare;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use kube::api::{DynamicObject, ListParams};
use kube::discovery::{ApiGroup, Discovery, verbs};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;

pub use compare::assert_same;

/// The version that `make helm` builds (hack/helm/go.mod), and the name of its folder in the per-user cache.
const HELM_VERSION: &str = "v4.3.1";

/// The chart of the operator.
pub const OPERATOR: &str = "portcullis";
/// The chart of its kinds.
pub const CRDS: &str = "portcullis-crds";
/// The chart of the stand-in for Dynamo's webhooks.
pub const DYNAMO: &str = "dynamo-webhooks";

/// A file or folder of this repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The folder of a chart.
pub fn chart(name: &str) -> PathBuf {
    repository("charts").join(name)
}

/// Everything in the cluster that a manifest names: kind, namespace and name. What controllers make of it by
/// themselves, and take away again when they come to it, is left out.
pub async fn inventory(client: Client) -> BTreeSet<String> {
    let derived = ["Event", "EndpointSlice", "Endpoints", "ReplicaSet", "Pod", "ControllerRevision", "APIService"];
    let discovery = Discovery::new(client.clone()).run().await.unwrap_or_else(|error| panic!("discovery: {error}"));
    let mut found = BTreeSet::new();
    for (resource, capabilities) in discovery.groups().flat_map(ApiGroup::recommended_resources) {
        if !capabilities.supports_operation(verbs::LIST) || derived.contains(&resource.kind.as_str()) {
            continue;
        }
        let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let items = match objects.list(&ListParams::default()).await {
            Ok(list) => list.items,
            // A kind that has just gone may still be discovered.
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(error) => panic!("cannot list {}: {error}", resource.plural),
        };
        for object in items {
            let namespace = object.namespace().unwrap_or_default();
            // Leases in kube-system are the control plane's own.
            if resource.kind == "Lease" && namespace == "kube-system" {
                continue;
            }
            found.insert(format!("{} {namespace}/{}", resource.kind, object.name_any()));
        }
    }
    found
}

/// A binary of this build, which a test finds one folder up.
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap_or_default();
    let path = test.ancestors().nth(2).unwrap_or(Path::new("")).join(name);
    assert!(path.is_file(), "{} is not built; run 'cargo build -p {name}'", path.display());
    path
}

/// The output of a binary's `generate`.
pub fn generate(binary: &Path, words: &[&str]) -> String {
    let output = Command::new(binary).arg("generate").args(words).stdin(Stdio::null()).output();
    let Output { status, stdout, stderr } = output.unwrap_or_else(|error| panic!("{}: {error}", binary.display()));
    assert!(status.success(), "{words:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8_lossy(&stdout).into_owned()
}

/// The program, and where it keeps what it keeps.
#[derive(Debug)]
pub struct Helm {
    program: PathBuf,
    home: tempfile::TempDir,
    kubeconfig: Option<PathBuf>,
}

impl Helm {
    /// The program of the per-user cache, without a cluster.
    pub fn new() -> Self {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
        let program = cache.unwrap_or_default().join("portcullis/helm").join(HELM_VERSION).join("helm");
        assert!(program.is_file(), "{} is not there: run 'make helm'", program.display());
        let home = tempfile::tempdir().unwrap_or_else(|error| panic!("no temporary folder: {error}"));
        Self { program, home, kubeconfig: None }
    }

    /// The same with a cluster.
    #[must_use]
    pub fn with_kubeconfig(self, kubeconfig: PathBuf) -> Self {
        Self { kubeconfig: Some(kubeconfig), ..self }
    }

    /// Runs helm and returns its output, or its errors if it fails.
    ///
    /// # Errors
    /// With its standard error, and its standard output where `lint` says what is wrong.
    pub fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        for (variable, folder) in
            [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")]
        {
            command.env(variable, self.home.path().join(folder));
        }
        // Never the cluster of who runs the tests.
        let nowhere = self.home.path().join("no.kubeconfig");
        command.env("KUBECONFIG", self.kubeconfig.as_ref().unwrap_or(&nowhere));
        let Output { status, stdout, stderr } = command
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", self.program.display()));
        let [stdout, stderr] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if status.success() { Ok(stdout) } else { Err(format!("{stderr}{stdout}")) }
    }

    /// A file with these values, by its path.
    pub fn values(&self, values: &Value) -> String {
        let path = self.home.path().join("values.json");
        std::fs::write(&path, values.to_string()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path.display().to_string()
    }

    fn render(&self, words: &[&str], chart: &Path, release: [&str; 2], values: &Value) -> Result<String, String> {
        let ([name, namespace], chart, values) = (release, chart.display().to_string(), self.values(values));
        self.run(&[words, &[name, &chart, "--namespace", namespace, "--values", &values]].concat())
    }

    /// The notes that a chart prints when it is installed with these values.
    pub fn notes(&self, chart: &Path, release: [&str; 2], values: &Value) -> String {
        let said = self.render(&["install", "--dry-run=client"], chart, release, values);
        let said = said.unwrap_or_else(|said| panic!("{said}"));
        said.split_once("NOTES:\n").unwrap_or_else(|| panic!("no notes: {said}")).1.to_owned()
    }

    /// The objects that a chart makes of these values, for a release in a namespace.
    ///
    /// # Errors
    /// With what helm says of values that it refuses.
    pub fn template(&self, chart: &Path, release: [&str; 2], values: &Value) -> Result<Vec<Value>, String> {
        let text = self.render(&["template"], chart, release, values)?;
        let objects = serde_saphyr::from_multiple::<Value>(&text);
        let objects = objects.unwrap_or_else(|error| panic!("not YAML: {error}\n{text}"));
        Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
    }
}

impl Default for Helm {
    fn default() -> Self {
        Self::new()
    }
}
