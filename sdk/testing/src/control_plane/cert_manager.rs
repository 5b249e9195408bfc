//! The real cert-manager beside a control plane.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::binaries::cache;
use super::cluster::unique;
use super::watcher::{Server, Watcher};
use crate::{ControlPlane, ControlPlaneError};

/// The version of cert-manager that `make cert-manager` builds (`hack/cert-manager/go.mod`), and the name of its
/// directory in the per-user cache.
pub const CERT_MANAGER_VERSION: &str = "v1.21.2";

const CERT_MANAGER: &str = "cert-manager";
/// Starting takes two seconds on a quiet machine; a busy one gets this long.
const START_DEADLINE: Duration = Duration::from_mins(3);

/// The real cert-manager: its CRDs, the controllers that issue from Issuers and ClusterIssuers of type CA and
/// self-signed, and the CA injector. Dropping it ends its process, and so does the end of the test process.
#[derive(Debug)]
pub struct CertManager {
    // Fields are dropped in this order: the process, then the watcher, which removes the directory.
    server: Server,
    watcher: Watcher,
}

impl CertManager {
    /// Installs the CRDs, starts the controllers and returns when they work. Start at most one per control plane.
    ///
    /// # Errors
    /// When `make cert-manager` has not been run on this machine, or it does not start.
    pub async fn start(cluster: &ControlPlane) -> Result<Self, ControlPlaneError> {
        let directory = cache(CERT_MANAGER).join(CERT_MANAGER_VERSION);
        let (program, crds) = (directory.join(CERT_MANAGER), directory.join("crds"));
        if !program.is_file() || !crds.is_dir() {
            return Err(ControlPlaneError::CertManagerNotInstalled { looked_in: directory });
        }
        let mut watcher = Watcher::start()?;
        let log = watcher.directory().join("cert-manager.log");
        let arguments = [cluster.kubeconfig_path(), crds].map(|path| path.display().to_string());
        let server = watcher.spawn(CERT_MANAGER, &program, &arguments, log)?;
        let mut started = Self { server, watcher };
        started.ready(&cluster.admin()).await?;
        Ok(started)
    }

    /// The cert-manager of [`ControlPlane::shared`], one for the whole test binary, started by the first call.
    ///
    /// # Panics
    /// When it cannot be started; the message says why, and which command installs what is missing.
    #[allow(clippy::panic, reason = "in a test this is the failure")]
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<Result<CertManager, String>> = OnceCell::const_new();
        let start = || async {
            let cluster = ControlPlane::shared().await;
            Self::start(cluster).await.map_err(|error| error.to_string())
        };
        match SHARED.get_or_init(start).await {
            Ok(cert_manager) => cert_manager,
            Err(problem) => panic!("{problem}"),
        }
    }

    /// Its log file.
    pub fn log_path(&self) -> PathBuf {
        self.watcher.directory().join("cert-manager.log")
    }

    /// The process ids of cert-manager and its watcher.
    pub fn process_ids(&self) -> Vec<u32> {
        vec![self.server.pid(), self.watcher.pid()]
    }

    /// Its directory, which is removed when it ends.
    pub fn directory(&self) -> &Path {
        self.watcher.directory()
    }

    /// It works when an issuer becomes ready. This one is removed again.
    async fn ready(&mut self, admin: &Client) -> Result<(), ControlPlaneError> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", "ClusterIssuer"));
        let issuers: Api<DynamicObject> = Api::all_with(admin.clone(), &kind);
        let name = unique("portcullis-testing");
        let begun = Instant::now();
        loop {
            let last = match tokio::time::timeout(Duration::from_secs(5), is_ready(admin, &issuers, &kind, &name)).await
            {
                Ok(Ok(())) => break,
                Ok(Err(problem)) => problem,
                Err(_) => "the API server did not answer".to_owned(),
            };
            if let Some(status) = self.server.ended() {
                let (status, log) = (status.to_string(), self.server.log_tail());
                return Err(ControlPlaneError::Ended { server: CERT_MANAGER, status, log });
            }
            if begun.elapsed() > START_DEADLINE {
                let (waited, log) = (begun.elapsed(), self.server.log_tail());
                return Err(ControlPlaneError::NotReady { what: CERT_MANAGER, waited, last, log });
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        issuers
            .delete(&name, &DeleteParams::default())
            .await
            .map_err(|error| ControlPlaneError::Client(error.into()))?;
        Ok(())
    }
}

async fn is_ready(admin: &Client, issuers: &Api<DynamicObject>, kind: &ApiResource, name: &str) -> Result<(), String> {
    // The injector, too, must know all kinds: the CRDs come first, including the one of Certificates.
    for crd in ["certificates", "certificaterequests", "issuers", "clusterissuers"] {
        let crds: Api<CustomResourceDefinition> = Api::all(admin.clone());
        crds.get(&format!("{crd}.cert-manager.io")).await.map_err(|error| error.to_string())?;
    }
    match issuers.get_opt(name).await.map_err(|error| error.to_string())? {
        None => {
            let issuer = DynamicObject::new(name, kind).data(json!({ "spec": { "selfSigned": {} } }));
            issuers.create(&PostParams::default(), &issuer).await.map_err(|error| error.to_string())?;
            Err("its first issuer was made just now".to_owned())
        }
        Some(issuer) => {
            let conditions = issuer.data.pointer("/status/conditions").and_then(Value::as_array);
            let ready = conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True");
            if ready { Ok(()) } else { Err("its first issuer is not ready".to_owned()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CERT_MANAGER_VERSION;

    #[test]
    fn the_version_is_the_one_that_make_cert_manager_builds() {
        let go_mod = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/cert-manager/go.mod");
        let pinned = format!("github.com/cert-manager/cert-manager {CERT_MANAGER_VERSION}");
        assert!(std::fs::read_to_string(go_mod).unwrap().contains(&pinned), "{go_mod} does not pin {pinned}");
    }
}
