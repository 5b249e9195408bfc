//! The CA bundle in a ConfigMap that a configuration names.

use super::{Content, MountedFile, Source};
use crate::problem::Problem;
use mcp_api::v1beta1::CaBundleRef;

/// Longest name of such a ConfigMap: it is part of the name of a volume.
const MAX_NAME: usize = 48;
/// The key where none is named.
const KEY: &str = "ca.crt";

/// The bundle as a file below `directory`, in a volume whose name begins with `volume`. A name that cannot be a volume's has
/// dashes for its dots: `kube-root-ca.crt`.
pub fn file(reference: &CaBundleRef, volume: &str, directory: &str) -> Option<MountedFile> {
    let map = reference.config_map_ref.as_ref()?;
    let key = if map.key.is_empty() { KEY } else { &map.key };
    Some(MountedFile {
        source: Source::ConfigMap(map.name.clone()),
        key: key.to_owned(),
        content: Content::Authorities,
        volume: format!("{volume}-{}", map.name.replace('.', "-")),
        directory: format!("{directory}/{}", map.name),
        file: key.to_owned().into(),
        optional: false,
    })
}

/// The rule that the reference at `field` breaks, if it breaks one.
pub fn problem(reference: &CaBundleRef, field: &str) -> Option<Problem> {
    let name = reference.config_map_ref.as_ref().map_or("", |map| &map.name);
    let message = if name.is_empty() {
        "is empty; name the ConfigMap with the CA bundle".to_owned()
    } else if name.len() > MAX_NAME {
        format!(
            "configMapRef.name {name:?} is too long ({} chars); maximum is {MAX_NAME} characters to fit in Kubernetes volume name",
            name.len()
        )
    } else {
        return None;
    };
    Some(Problem::new(format!("{field}.configMapRef.name"), message))
}
