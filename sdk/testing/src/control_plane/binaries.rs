//! Finds the servers' programs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub(crate) use super::error::CONTROLLER_MANAGER;
use crate::ControlPlaneError;

/// The version of Kubernetes that `make control-plane` builds (`hack/control-plane/go.mod`), and the name of its
/// directory in the per-user cache.
pub const KUBERNETES_VERSION: &str = "v1.36.3";

pub(crate) const ETCD: &str = "etcd";
pub(crate) const API_SERVER: &str = "kube-apiserver";

/// The first directory that holds all of `needed`: `KUBEBUILDER_ASSETS`, the per-user cache with the version that this
/// crate is tested with, then what `setup-envtest` has installed. One directory, so that servers of different versions
/// are never mixed.
pub(crate) fn locate(needed: &[&'static str]) -> Result<PathBuf, ControlPlaneError> {
    let store = envtest_store(variable("XDG_DATA_HOME"), variable("HOME"), std::env::consts::OS);
    let installed = store.map(|store| installed(&store)).unwrap_or_default();
    find(needed, candidates(variable("KUBEBUILDER_ASSETS"), cache("control-plane"), installed))
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

/// The folder that `setup-envtest use` downloads to, unless it gets another `--bin-dir`:
/// `<store>/k8s/1.36.0-linux-amd64`.
fn envtest_store(data_home: Option<OsString>, home: Option<OsString>, os: &str) -> Option<PathBuf> {
    let home = home.map(PathBuf::from);
    if os == "macos" {
        return home.map(|home| home.join("Library/Application Support/io.kubebuilder.envtest"));
    }
    let data = data_home.map(PathBuf::from).or_else(|| home.map(|home| home.join(".local/share")))?;
    Some(data.join("kubebuilder-envtest"))
}

/// The versions in that store which are for this machine, the newest first; and last the folder that they would be in.
fn installed(store: &Path) -> Vec<PathBuf> {
    let platform = format!("-{}-{}", go_name(std::env::consts::OS), go_name(std::env::consts::ARCH));
    let folder = store.join("k8s");
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let version = |path: &Path| -> Option<Vec<u32>> {
        let version = path.file_name()?.to_str()?.strip_suffix(&platform)?;
        version.split('.').map(|part| part.parse().ok()).collect()
    };
    let mut versions: Vec<_> =
        entries.map(|entry| entry.path()).filter_map(|path| Some((version(&path)?, path))).collect();
    versions.sort_unstable();
    versions.into_iter().rev().map(|(_, path)| path).chain([folder]).collect()
}

/// The name of a platform or an architecture in Go, and so in `setup-envtest`.
fn go_name(ours: &str) -> &str {
    match ours {
        "macos" => "darwin",
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn candidates(assets: Option<OsString>, control_plane: PathBuf, installed: Vec<PathBuf>) -> Vec<PathBuf> {
    let cache = control_plane.join(KUBERNETES_VERSION);
    // The servers run inside of another directory, where a relative path would lead elsewhere.
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    assets.map(PathBuf::from).into_iter().chain([cache]).chain(installed).map(absolute).collect()
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
    fn an_assets_directory_comes_first_and_must_be_complete() {
        let root = tempfile::tempdir().unwrap();
        let (assets, home) = (root.path().join("assets"), root.path().join("home"));
        let caches = cache_in(None, Some(home.clone().into()), PathBuf::from("/nowhere")).join("control-plane");
        let places = || candidates(Some(assets.clone().into()), caches.clone(), Vec::new());
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
        assert!(
            error.find("`make control-plane`") < error.find("`setup-envtest"),
            "it has no controller manager: {error}"
        );
        let error = find(&[ETCD, API_SERVER], vec![home]).unwrap_err().to_string();
        assert!(error.find("`setup-envtest use`") < error.find("`make control-plane`"), "what most have: {error}");
    }

    #[test]
    fn the_newest_setup_envtest_install_for_this_machine_is_found() {
        let root = tempfile::tempdir().unwrap();
        let home = Some(root.path().as_os_str().to_owned());
        let store = envtest_store(None, home.clone(), "linux").unwrap();
        assert_eq!(store, root.path().join(".local/share/kubebuilder-envtest"));
        assert_eq!(envtest_store(Some("/data".into()), home, "linux"), Some("/data/kubebuilder-envtest".into()));
        assert_eq!(installed(&store), [store.join("k8s")], "nothing is installed yet, and this is where it would be");
        let here = format!("-{}-{}", go_name(std::env::consts::OS), go_name(std::env::consts::ARCH));
        let directory = |name: &str| store.join("k8s").join(name);
        let (old, new) = (directory(&format!("1.9.2{here}")), directory(&format!("1.36.0{here}")));
        for place in [&old, &new, &directory("1.37.0-plan9-mips"), &directory("latest")] {
            std::fs::create_dir_all(place).unwrap();
            for name in [ETCD, API_SERVER] {
                std::fs::write(place.join(name), "").unwrap();
            }
        }
        assert_eq!(installed(&store), [new.clone(), old, store.join("k8s")]);
        let places =
            |assets: Option<&Path>| candidates(assets.map(Into::into), root.path().join("no cache"), installed(&store));
        assert_eq!(find(&[ETCD, API_SERVER], places(None)).unwrap(), new);
        assert_eq!(find(&[ETCD, API_SERVER], places(Some(&directory("latest")))).unwrap(), directory("latest"));
    }

    #[test]
    fn the_cache_follows_xdg() {
        let cache = cache_in(Some("/xdg".into()), Some("/home/me".into()), PathBuf::from("/tmp"));
        assert_eq!(cache, PathBuf::from("/xdg/portcullis"));
    }

    #[test]
    fn a_relative_place_is_taken_from_where_the_test_runs() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(candidates(Some("bin/k8s".into()), PathBuf::new(), Vec::new())[0], here.join("bin/k8s"));
    }

    #[test]
    fn the_version_is_the_one_that_make_control_plane_builds() {
        let go_mod = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/control-plane/go.mod");
        let pinned = format!("k8s.io/kubernetes {KUBERNETES_VERSION}");
        assert!(std::fs::read_to_string(go_mod).unwrap().contains(&pinned), "{go_mod} does not pin {pinned}");
    }
}
