//! Errors of stored certificates, with the fix.

use portcullis_client::error_message;
use portcullis_listener::TlsError;

/// Errors of stored certificates.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// The API server refused, or did not answer. Retry, unless the message names what has to be fixed first.
    #[error("cannot {action} Secret {namespace}/{name}: {}{}", error_message(&**source), fix(action, namespace, source))]
    Api {
        /// `read`, `create` or `update`.
        action: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The API server's answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// A certificate could not be issued.
    #[error(transparent)]
    Pki(#[from] portcullis_pki::PkiError),
    /// The pair cannot be served.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A newly issued certificate cannot be served: the stored CA cannot issue for these names. Delete the Secret
    /// `<name>-ca`, or correct the names.
    #[error("a certificate under the CA in Secret {namespace}/{ca} cannot be served: {problem}")]
    Unusable {
        /// Namespace of the Secrets.
        namespace: String,
        /// Name of the CA's Secret.
        ca: String,
        /// The fault of the pair that it issues.
        problem: String,
    },
    /// The Secret that cert-manager or a user provides is missing or cannot be served.
    #[error("Secret {namespace}/{name} cannot be served: {problem}; {cure}")]
    ProvidedCertificates {
        /// Namespace of the Secret.
        namespace: String,
        /// Its name.
        name: String,
        /// The fault of the Secret.
        problem: String,
        /// The fix.
        cure: String,
    },
    /// cert-manager fills the Secret in which certificates were to be made, and would replace them. Use another Secret.
    #[error(
        "Secret {namespace}/{name} is filled by cert-manager, for Certificate {certificate}: name another Secret, as in \
         --certificate-secret, or delete that Certificate and the Secret first"
    )]
    FilledByCertManager {
        /// Namespace of the Secret.
        namespace: String,
        /// Its name.
        name: String,
        /// The Certificate, as the Secret's annotation names it.
        certificate: String,
    },
    /// The API server did not answer within half a minute when the Secret was read. Retry.
    #[error("the API server does not answer for Secret {namespace}/{name}")]
    Slow {
        /// Namespace of the Secret.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Others kept writing to the Secrets, or the API server was slow. Retry.
    #[error("the certificate Secrets keep changing; is another program writing {namespace}/{name}?")]
    Unsettled {
        /// Namespace of the Secret.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl CertificateError {
    /// Whether retrying is of no use. A request that the API server forbids (403) or rejects (422) stays so until a
    /// person does what the message says; and so does a timing by which new certificates would be replaced at once.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Api { source, .. } => {
                matches!(&**source, kube::Error::Api(status) if status.code == 403 || status.code == 422)
            }
            Self::Pki(portcullis_pki::PkiError::Timing { .. }) | Self::FilledByCertManager { .. } => true,
            _ => false,
        }
    }
}

/// The fix for a refused request; empty if a retry may help.
fn fix(action: &str, namespace: &str, error: &kube::Error) -> String {
    match error {
        // `User "x" cannot get resource …`. A quota, a policy or a terminating namespace is not fixed by roles.
        kube::Error::Api(status) if status.code == 403 && status.message.contains("\" cannot ") => {
            "; compare the roles with 'generate rbac'".to_owned()
        }
        // `Secret "x" is invalid: …`. A new Secret does not help against a policy.
        kube::Error::Api(status) if status.code == 422 && status.message.contains("\" is invalid: ") => {
            "; delete this Secret, and it is created again".to_owned()
        }
        // A Secret that is created cannot be the missing object: the namespace is.
        kube::Error::Api(status) if status.code == 404 && action == "create" => {
            format!("; namespace {namespace} does not exist: kubectl create namespace {namespace}")
        }
        _ => String::new(),
    }
}
