//! The proof that a namespace is handed over, which a restricted operator reads before each write of its Lease.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::{Api, Client, ResourceExt as _};

use crate::LeaseError;
use crate::handovers::{of_binding, of_policy, policy_name};

/// The policy and the binding that were seen, by their identifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen([Option<String>; 2]);

/// The policy that hands one namespace over, and its binding.
#[derive(Clone, Debug)]
pub(super) struct Proof {
    policies: Api<ValidatingAdmissionPolicy>,
    bindings: Api<ValidatingAdmissionPolicyBinding>,
    namespace: String,
    lease: String,
    name: String,
}

impl Proof {
    pub(super) fn new(client: Client, lease: &str, namespace: &str) -> Self {
        let (policies, bindings) = (Api::all(client.clone()), Api::all(client));
        let (lease, name, namespace) = (lease.to_owned(), policy_name(lease, namespace), namespace.to_owned());
        Self { policies, bindings, namespace, lease, name }
    }

    /// The identifiers of both, where they hand the namespace over: another pair of the same names is another proof.
    pub(super) async fn read(&self) -> Result<Option<Seen>, kube::Error> {
        let (policy, binding) =
            futures::try_join!(self.policies.get_opt(&self.name), self.bindings.get_opt(&self.name))?;
        let (Some(policy), Some(binding)) = (policy, binding) else { return Ok(None) };
        let of = |namespace: Option<String>| namespace.as_ref() == Some(&self.namespace);
        let both = of(of_policy(&self.lease, &policy)) && of(of_binding(&self.lease, &binding));
        Ok(both.then(|| Seen([policy.uid(), binding.uid()])))
    }

    pub(super) fn missing(&self) -> LeaseError {
        LeaseError::NotHandedOver { namespace: self.namespace.clone(), policy: self.name.clone() }
    }

    pub(super) fn error(&self, source: kube::Error) -> LeaseError {
        let what = format!("the ValidatingAdmissionPolicy {} and its binding", self.name);
        LeaseError::Request { action: "read", what, source: Box::new(source) }
    }
}
