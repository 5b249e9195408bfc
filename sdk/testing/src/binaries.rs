//! Where the servers' programs are.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::ControlPlaneError;

/// The version of Kubernetes that `make control-plane` builds (`hack/control-plane/go.mod`), and the name of its
/// directory in the per-user cache.
pub const KUBERNETES_VERSION: &str = "v1.36.3";

pub(crate) const ETCD: &str = "etcd";
pub(crate) const API_SERVER: &str = "kube-apiserver";
pub(crate) const CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// The first directory that holds all of `needed`: `KUBEBUILDER_ASSETS`, then the per-user cache. One directory, so
/// that servers of different versions are never mixed.
pub(crate) fn locate(needed: &[&'static str]) -> Result<PathBuf, ControlPlaneError> {
    find(needed, candidates(variable("KUBEBUILDER_ASSETS"), cache("control-plane")))
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The per-user cache of `part`, which has a directory for each version.
pub(crate) fn cache(part: &str) -> PathBuf {
    cache_in(variable("XDG_CACHE_HOME"), variable("HOME"), std::env::temp_dir()).join(part)
}

fn cache_in(cache_home: Option<OsString>, home: Option<OsString>, temporary: PathBuf) -> PathBuf {
    cache_home
        .map(PathBuf::from)
        .or_else(|| home.map(|home| PathBuf::from(home).join(".cache")))
        .unwrap_or(temporary)
        .join("portcullis")
}

fn candidates(assets: Option<OsString>, control_plane: PathBuf) -> Vec<PathBuf> {
    let cache = control_plane.join(KUBERNETES_VERSION);
    // The servers run inside of another directory, where a relative path would lead elsewhere.
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    assets.map(PathBuf::from).into_iter().chain([cache]).map(absolute).collect()
}

fn find(needed: &[&'static str], looked_in: Vec<PathBuf>) -> Result<PathBuf, ControlPlaneError> {
    let mut missing = Vec::new();
    for directory in &looked_in {
        missing = needed.iter().copied().filter(|name| !directory.join(name).is_file()).collect();
        if missing.is_empty() {
            return Ok(directory.clone());
        }
    }
    Err(ControlPlaneError::NotInstalled { missing, looked_in })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assets_directory_comes_before_the_cache_and_must_hold_every_server() {
        let root = tempfile::tempdir().unwrap();
        let (assets, home) = (root.path().join("assets"), root.path().join("home"));
        let caches = cache_in(None, Some(home.clone().into()), PathBuf::from("/nowhere")).join("control-plane");
        let places = || candidates(Some(assets.clone().into()), caches.clone());
        let cache = places()[1].clone();
        assert_eq!(cache, home.join(".cache/portcullis/control-plane").join(KUBERNETES_VERSION));
        for (directory, names) in [(&assets, vec![ETCD]), (&cache, vec![ETCD, API_SERVER])] {
            std::fs::create_dir_all(directory).unwrap();
            for name in names {
                std::fs::write(directory.join(name), "").unwrap();
            }
        }
        assert_eq!(find(&[ETCD], places()).unwrap(), assets);
        assert_eq!(find(&[ETCD, API_SERVER], places()).unwrap(), cache);
        let error = find(&[ETCD, API_SERVER, CONTROLLER_MANAGER], places()).unwrap_err().to_string();
        for part in ["kube-controller-manager not found", "assets or ", "`make control-plane`", "KUBEBUILDER_ASSETS"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(!error.contains("etcd"), "{error}");
    }

    #[test]
    fn the_cache_follows_xdg() {
        let cache = cache_in(Some("/xdg".into()), Some("/home/me".into()), PathBuf::from("/tmp"));
        assert_eq!(cache, PathBuf::from("/xdg/portcullis"));
    }

    #[test]
    fn a_relative_place_is_taken_from_where_the_test_runs() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(candidates(Some("bin/k8s".into()), PathBuf::new())[0], here.join("bin/k8s"));
    }

    #[test]
    fn the_version_is_the_one_that_make_control_plane_builds() {
        let go_mod = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/control-plane/go.mod");
        let pinned = format!("k8s.io/kubernetes {KUBERNETES_VERSION}");
        assert!(std::fs::read_to_string(go_mod).unwrap().contains(&pinned), "{go_mod} does not pin {pinned}");
    }
}
