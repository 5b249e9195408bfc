//! Stands in for the validating webhooks of Dynamo's operator: the same kinds, rules, names, paths and messages, as its guide
//! promises them (Dynamo 0.7 and 0.8), on the SDK. The README lists what differs on purpose.

pub mod command_line;
mod controllers;
pub mod kinds;
pub mod rules;
mod webhooks;

use portcullis::operator::{Components, Operator, SetupContext};
use portcullis::webhooks::{RegistrationError, Webhooks};
use tracing::{error, info};

use controllers::with_controllers;
use rules::RuleContext;
pub use webhooks::webhooks;

/// The operator's name.
const NAME: &str = "dynamo-operator";
/// The Lease of a restricted operator, as the guide names it.
const SCOPE_LEASE: &str = "dynamo-operator-ns-lock";

/// The account of Dynamo's own operator: in Dynamo's Deployment, the downward API sets these variables.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Arguments {
    /// ServiceAccount of the Dynamo operator, which may scale services that have a scaling adapter
    #[arg(long, env = "POD_SERVICE_ACCOUNT", value_name = "NAME")]
    pub operator_account: Option<String>,
    /// Its namespace
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    pub operator_account_namespace: Option<String>,
}

impl Arguments {
    /// The name under which that account makes requests.
    fn principal(&self) -> Option<String> {
        let (namespace, name) = (self.operator_account_namespace.as_ref()?, self.operator_account.as_ref()?);
        (!namespace.is_empty() && !name.is_empty()).then(|| format!("system:serviceaccount:{namespace}:{name}"))
    }
}

/// Returns the operator. `without_effect` are flags that were given and do nothing here: the log names them.
pub fn operator(without_effect: Vec<String>) -> Operator<Arguments> {
    Operator::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .crds(kinds::crds())
        .scope_lease(SCOPE_LEASE)
        .setup_with_context(move |arguments: &Arguments, installation| {
            let restricted_to = installation.restricted_to.clone();
            let webhooks = webhooks(RuleContext { restricted_to, principal: arguments.principal() });
            announce(installation, arguments.principal(), &webhooks, &without_effect)?;
            Ok(with_controllers(Components::new(webhooks), installation.webhooks))
        })
}

/// Logs the lines that people look for in the log of Dynamo's operator. The SDK logs the rest in the same words, but for two
/// lines: `Starting certificate poll+watcher`, for nothing is polled, and the minute that Dynamo takes to end.
fn announce(
    installation: &SetupContext,
    principal: Option<String>,
    webhooks: &Webhooks,
    without_effect: &[String],
) -> Result<(), RegistrationError> {
    if !without_effect.is_empty() {
        let flags = without_effect.join(" ");
        info!(flags, "flags without effect: they are about what this operator does not do, or does in one way only");
    }
    if !installation.webhooks.is_on() {
        return Ok(());
    }
    match &installation.restricted_to {
        None => info!("Configuring webhooks with lease-based namespace exclusion for cluster-wide mode"),
        Some(namespace) => {
            info!(
                restrictedNamespace = namespace,
                "Configuring webhooks for namespace-restricted mode (no lease checking)"
            );
        }
    }
    if let Some(principal) = principal {
        info!(principal, "Detected operator principal from downward API");
    } else {
        info!("POD_SERVICE_ACCOUNT/POD_NAMESPACE not set; operator SA self-identification disabled");
    }
    info!("Registering validation webhooks");
    // The error names the webhook.
    for webhook in webhooks.manifests().inspect_err(|error| error!(%error, "unable to register webhook"))? {
        info!(path = webhook.path, "Registering webhook");
    }
    info!("Validation webhooks registered successfully");
    Ok(())
}
