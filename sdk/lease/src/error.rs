use std::time::Duration;

/// Errors of leases.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// A name is empty, a duration is zero, or two durations are in the wrong order.
    #[error("{0}")]
    Invalid(String),
    /// The API server refused, or the connection to it failed.
    #[error("cannot {action} {what}{}", advice(.source))]
    Request {
        /// The attempt: `read`, `write`, `release`, `list` or `watch`.
        action: &'static str,
        /// Its subject, as in `the Lease team-a/scope` or `leases named scope in all namespaces`.
        what: String,
        /// The answer of the API server, or the failure of the connection.
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("no answer within {limit:?} on an attempt to {action} {what}")]
    Late {
        /// The attempt: `read`, `write`, `release`, `list` or `watch`.
        action: &'static str,
        /// Its subject, as in `the Lease team-a/scope`.
        what: String,
        /// The limit.
        limit: Duration,
    },
    /// No administrator has handed the namespace over to this operator.
    #[error(
        "namespace {namespace} is not handed over: there is no ValidatingAdmissionPolicy {policy} with a binding of that name; \
         an administrator applies what 'generate rbac' prints for this installation"
    )]
    NotHandedOver {
        /// The namespace.
        namespace: String,
        /// The name of the missing policy.
        policy: String,
    },
}

impl LeaseError {
    pub(crate) fn zero(field: &str) -> Self {
        Self::Invalid(format!("{field} is zero: give it a positive duration"))
    }

    /// Refuses an empty name.
    pub(crate) fn check_names(names: &[(&str, &str)]) -> Result<(), Self> {
        match names.iter().find(|(_, name)| name.is_empty()) {
            Some((field, _)) => Err(Self::Invalid(format!("{field} is empty: name it"))),
            None => Ok(()),
        }
    }
}

/// The fix, where it is known.
fn advice(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            "; grant what 'generate rbac' prints: get, create and patch on leases in the namespace, get on the policy and its binding, or list and watch in all namespaces to the cluster-wide operator"
        }
        kube::Error::Api(status) if status.code == 404 => "; create the namespace first",
        _ => "",
    }
}
