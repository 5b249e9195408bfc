//! Parts of a package's metadata, and the tools that document it.

use std::path::{Path, PathBuf};

use portcullis_tidy::repository_root;
use serde_json::Value;

pub(crate) fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}

/// The name by which code uses the package's library, if it has one.
pub(crate) fn library(package: &Value) -> Option<String> {
    let targets = package["targets"].as_array().unwrap();
    let library = targets.iter().find(|target| is_library(target))?;
    Some(library["name"].as_str().unwrap().replace('-', "_"))
}

fn is_library(target: &Value) -> bool {
    target["kind"].as_array().unwrap().iter().any(|kind| kind == "lib" || kind == "proc-macro")
}

/// The manifest's settings for docs.rs.
pub(crate) fn docs_rs(package: &Value) -> &Value {
    &package["metadata"]["docs"]["rs"]
}

/// The texts of a list in the metadata; none where there is no list.
pub(crate) fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// The target folder that this test was built into.
pub(crate) fn target_folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().to_owned()
}

/// rustdoc with the features of nightly, which docs.rs has.
pub(crate) fn nightly_rustdoc() -> PathBuf {
    repository_root().canonicalize().unwrap().join("hack/rustdoc/rustdoc.sh")
}
