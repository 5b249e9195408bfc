//! What is said at `kubectl apply`: the rules of [`crate::plan::rules`], which the schema cannot say, and references.
//!
//! What can never work is refused with the field, or only warned of where the operator runs with `--admission=warn`.
//! A reference to something that does not exist yet is never more than a warning: manifests are applied in any order.

mod missing;
mod server;
mod webhook_config;

use std::sync::Arc;

use clap::ValueEnum;
use portcullis::webhooks::{Cause, Validate, Verdict, Webhooks};

use crate::{controllers::Stores, plan::rules::Problem};

use server::ServerRules;
use webhook_config::WebhookConfigRules;

/// What becomes of an object that can never work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Admission {
    /// It is refused.
    #[default]
    Deny,
    /// It is admitted with warnings; its status says what is wrong.
    Warn,
}

/// The validating webhooks of both kinds. References are looked up in `stores`, once those are ready.
pub fn webhooks(admission: Admission, stores: &Arc<Stores>) -> Webhooks {
    let servers = ServerRules { admission, stores: stores.clone() };
    let configs = WebhookConfigRules { admission, stores: stores.clone() };
    Webhooks::new()
        .validate(Validate::named("mcpserver").validator(Arc::new(servers)))
        .validate(Validate::named("mcpwebhookconfig").validator(Arc::new(configs)))
}

// === impl Admission ===

impl Admission {
    /// The verdict on an object that breaks these rules.
    fn judge(self, problems: Vec<Problem>) -> Verdict {
        match self {
            Self::Deny => Verdict::of(problems.into_iter().map(|problem| Cause::new(problem.field, problem.message))),
            Self::Warn => {
                problems.into_iter().fold(Verdict::allow(), |verdict, problem| verdict.warn(problem.to_string()))
            }
        }
    }
}
