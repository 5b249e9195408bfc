//! The terms of a workload's reference to policies, which every kind of workload has.

use std::borrow::Cow;

use mcp_runconfig::SHADOW_AUTHORIZATION;
use serde::{Deserialize, Serialize};

use super::{ConfigUse, Misfit, Role, Words};

/// The reason where policies that are tried break a rule, or are a service.
const NOT_VALID: &str = "ShadowPoliciesRefNotValid";

/// The terms of a reference to policies.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyTerms {
    /// Whether they are only tried.
    pub tried: bool,
}

impl PolicyTerms {
    /// Policies that are only tried.
    pub const TRIED: Self = Self { tried: true };
    /// The reason against policies that are tried and that a service decides.
    pub const NO_SERVICE: Misfit = Misfit {
        reason: NOT_VALID,
        problem: Cow::Borrowed(
            "has the type httpv1, and only Cedar policies can be tried; name one of cedarv1, or try the service as a webhook",
        ),
    };

    /// Whether a use only tries its policies.
    pub fn are_tried(used: &ConfigUse) -> bool {
        used.middleware.contains(&SHADOW_AUTHORIZATION)
    }
}

/// A use on the terms of [`PolicyTerms::TRIED`], which conditions tell from the one of policies in force.
pub fn tried(used: ConfigUse) -> ConfigUse {
    let words = Words {
        condition: "ShadowPoliciesRefValidated",
        valid: "ShadowPoliciesRefValid",
        not_found: "ShadowPoliciesRefNotFound",
        not_valid: NOT_VALID,
        data_not_found: NOT_VALID,
        data_not_valid: NOT_VALID,
        bundle: None,
    };
    ConfigUse { role: Role::Trial, words: Some(words), middleware: &[SHADOW_AUTHORIZATION], ..used }
}
