//! MCPOIDCConfig: whose tokens open a workload, and how they are checked.

mod login;
mod rules;

use mcp_api::v1beta1::{MCPOIDCConfig, OidcConfigRef};
use mcp_plan::{
    config::{BundleWords, Needs, Target, Words},
    problem::Problem,
    reference::{Content, Reference, SecretVariable},
    settings::Settings,
};
use mcp_runconfig::{RunConfig, chain, environment};

use crate::{
    config::{ConfigKind, LoginTerms},
    subject::Subject,
};

impl Subject for MCPOIDCConfig {
    const FINALIZER: Option<&'static str> = Some("mcpoidcconfig.toolhive.stacklok.dev/finalizer");
    const RESOURCES: [&'static str; 3] = ["mcpoidcconfigs", "mcpoidcconfigs/status", "mcpoidcconfigs/finalizers"];

    fn references(&self) -> Vec<Reference> {
        let secret = login::client_secret(&self.spec).map(|it| Reference::to_key("spec.inline.clientSecretRef", it));
        let bundle = login::ca_bundle(&self.spec);
        let bundle = bundle.map(|file| Reference::to_file("spec.inline.caBundleRef.configMapRef", &file));
        secret.into_iter().chain(bundle).collect()
    }

    fn problems(&self) -> Vec<Problem> {
        rules::problems(&self.spec)
    }

    fn settings_problems(&self, settings: &Settings) -> Vec<Problem> {
        rules::endpoint_problems(&self.spec, settings)
    }

    fn warnings(&self, _: &Settings) -> Vec<String> {
        rules::warnings(&self.spec)
    }
}

/// The reference of a workload, of whichever kind.
impl From<&OidcConfigRef> for LoginTerms {
    fn from(reference: &OidcConfigRef) -> Self {
        Self {
            audience: reference.audience.clone(),
            scopes: reference.scopes.clone().unwrap_or_default(),
            resource_url: reference.resource_url.clone().filter(|url| !url.is_empty()),
        }
    }
}

impl ConfigKind for MCPOIDCConfig {
    const WORDS: Words = Words {
        condition: "OIDCConfigRefValidated",
        valid: "OIDCConfigRefValid",
        not_found: "OIDCConfigRefNotFound",
        not_valid: "OIDCConfigRefNotValid",
        data_not_found: "OIDCConfigRefError",
        data_not_valid: "OIDCConfigRefError",
        bundle: Some(BundleWords {
            condition: "CABundleRefValidated",
            valid: "CABundleRefValid",
            not_found: "CABundleRefNotFound",
            not_valid: "CABundleRefInvalid",
        }),
    };
    const VALIDITY: (&'static str, &'static str) = ("ConfigValid", "ConfigInvalid");
    const MIDDLEWARE: &'static [&'static str] = &[chain::AUTH];

    type Terms = LoginTerms;

    fn needs(&self, _: &Target, _: &LoginTerms) -> Needs {
        let secret = login::client_secret(&self.spec).map(|it| SecretVariable {
            name: environment::OIDC_CLIENT_SECRET.into(),
            secret: it.name.clone(),
            key: it.key.clone(),
            content: Content::Bytes,
        });
        Needs {
            files: login::ca_bundle(&self.spec).into_iter().collect(),
            secrets: secret.into_iter().collect(),
            account: login::needs_account(&self.spec),
            ..Needs::default()
        }
    }

    fn render(&self, target: &Target, terms: &LoginTerms, document: &mut RunConfig) {
        document.require_login(login::login(&self.spec, target, terms));
    }
}
