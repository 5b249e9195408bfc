//! What has to stand before a restricted operator writes its Lease.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::{Api, Client, ResourceExt as _};

use crate::{LeaseError, Vouchers};

/// The policy and the binding that were seen, by their identifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stands([Option<String>; 2]);

/// The policy that hands one namespace over, and its binding.
#[derive(Clone, Debug)]
pub(super) struct Voucher {
    vouchers: Vouchers,
    policies: Api<ValidatingAdmissionPolicy>,
    bindings: Api<ValidatingAdmissionPolicyBinding>,
    namespace: String,
    name: String,
}

impl Voucher {
    pub(super) fn new(client: Client, vouchers: Vouchers, lease: &str, namespace: &str) -> Self {
        let (policies, bindings) = (Api::all(client.clone()), Api::all(client));
        let name = Vouchers::policy(lease, namespace);
        Self { vouchers, policies, bindings, namespace: namespace.to_owned(), name }
    }

    /// Which they are, where both stand for the namespace: others of the same names are not the same.
    pub(super) async fn stands(&self) -> Result<Option<Stands>, kube::Error> {
        let (policy, binding) =
            futures::try_join!(self.policies.get_opt(&self.name), self.bindings.get_opt(&self.name))?;
        let (Some(policy), Some(binding)) = (policy, binding) else { return Ok(None) };
        let of = |namespace: Option<String>| namespace.as_ref() == Some(&self.namespace);
        let both = of(self.vouchers.admission_policy(&policy)) && of(self.vouchers.binding(&binding));
        Ok(both.then(|| Stands([policy.uid(), binding.uid()])))
    }

    pub(super) fn missing(&self) -> LeaseError {
        LeaseError::Unvouched { namespace: self.namespace.clone(), policy: self.name.clone() }
    }

    pub(super) fn error(&self, source: kube::Error) -> LeaseError {
        LeaseError::Voucher { policy: self.name.clone(), source: Box::new(source) }
    }
}
