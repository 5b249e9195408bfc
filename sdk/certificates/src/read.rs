//! Reading a Secret.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::time::timeout;

use super::CertificateError;

/// The deadline of one read.
const READ: Duration = Duration::from_secs(30);

/// The Secret, if there is one.
pub(super) async fn read(client: &Client, namespace: &str, name: &str) -> Result<Option<Secret>, CertificateError> {
    let (in_namespace, named) = (namespace.to_owned(), name.to_owned());
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    match timeout(READ, secrets.get_opt(name)).await {
        Ok(Ok(secret)) => Ok(secret),
        Ok(Err(error)) => {
            Err(CertificateError::Api { action: "read", namespace: in_namespace, name: named, source: Box::new(error) })
        }
        Err(_) => Err(CertificateError::Slow { namespace: in_namespace, name: named }),
    }
}
