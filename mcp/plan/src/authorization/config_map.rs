//! A document in a ConfigMap that a workload names.

use std::sync::Arc;

use crate::{
    config::{Config, Needs, Target, Terms},
    digest::short_digest,
    problem::Problem,
    reference::{Data, Reference, Source},
    settings::Settings,
};
use mcp_api::v1beta1::{self, AuthzConfigMapRef};
use mcp_runconfig::{AuthzConfig, RunConfig};

use super::check;

/// A document in a ConfigMap, and what the workload says in the place of its members.
#[derive(Debug)]
pub(super) struct InConfigMap {
    name: String,
    key: String,
    /// The names of the claims with groups and with roles, and the type of their entities.
    groups: [Option<String>; 3],
}

/// A document, read.
#[derive(Debug)]
struct Document(AuthzConfig);

// === impl InConfigMap ===

impl InConfigMap {
    pub(super) fn of(spec: &v1beta1::AuthzConfig, map: &AuthzConfigMapRef) -> Self {
        let groups = [&spec.group_claim_name, &spec.role_claim_name, &spec.group_entity_type];
        Self { name: map.name.clone(), key: map.key.clone(), groups: groups.map(Clone::clone) }
    }

    fn source(&self) -> Source {
        Source::ConfigMap(self.name.clone())
    }

    /// Reads the document, which is JSON or YAML.
    fn read(&self, text: &str) -> Result<Document, Problem> {
        // Without the lines around an error: the status is for more eyes than the ConfigMap.
        let options = serde_saphyr::options! { with_snippet: false };
        let value = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| Problem::new("document", format!("is neither JSON nor YAML: {error}")))?;
        let mut config = AuthzConfig { sorted: true, ..check::read(value)? };
        if let Some(cedar) = &mut config.cedar {
            let members = [&mut cedar.group_claim_name, &mut cedar.role_claim_name, &mut cedar.group_entity_type];
            for (member, own) in members.into_iter().zip(&self.groups) {
                if let Some(own) = own.as_ref().filter(|own| !own.is_empty()) {
                    member.clone_from(own);
                }
            }
        }
        check::problem(&config).map_or(Ok(Document(config)), Err)
    }
}

impl Config for InConfigMap {
    fn references(&self) -> Vec<Reference> {
        vec![Reference::to_text("spec.authzConfig.configMap", &self.name).with_key(&self.key)]
    }

    fn read_texts(&self, data: &Data) -> Result<Option<Arc<dyn Config>>, String> {
        let said = |problem: &str| format!("{}/{}: {problem}", self.source(), self.key);
        if let Some(absence) = data.absence(&self.source(), &self.key) {
            return Err(absence);
        }
        let entry = data.entry(&self.source(), &self.key);
        let text = entry.and_then(|entry| entry.text.as_deref()).ok_or_else(|| said("is no text"))?;
        let document = self.read(text).map_err(|problem| said(&problem.to_string()))?;
        Ok(Some(Arc::new(document)))
    }

    /// The hash of its place: what counts is that of the document.
    fn hash(&self) -> String {
        short_digest(&(&self.name, &self.key))
    }

    fn needs(&self, _: &Target, _: &Terms) -> Needs {
        Needs { texts: vec![(self.source(), self.key.clone())], ..Needs::default() }
    }

    /// Nothing is rendered before the document is read.
    fn render(&self, _: &Target, _: &Terms, _: &mut RunConfig) {}
}

impl Config for Document {
    fn problems(&self, settings: &Settings) -> Vec<Problem> {
        check::endpoint_problem(&self.0, settings).into_iter().collect()
    }

    fn hash(&self) -> String {
        short_digest(&self.0)
    }

    fn render(&self, _: &Target, _: &Terms, document: &mut RunConfig) {
        document.authz_config = Some(self.0.clone());
    }
}
