//! DynamoModel.

use super::{Findings, RuleContext, Rules, may_surprise};
use crate::kinds::{DynamoModel, DynamoModelSpec, is_immutable};

/// The type of a model that needs a source.
const LORA: &str = "lora";
/// The URI schemes of sources.
const SCHEMES: [&str; 2] = ["s3://", "hf://"];

impl Rules for DynamoModel {
    fn check(&self, _: &RuleContext) -> Findings {
        problem(&self.spec).map_or_else(Findings::default, Findings::refused)
    }

    fn check_change(&self, old: &Self, _: &str, _: &RuleContext) -> Findings {
        let (old, new) = (&old.spec, &self.spec);
        let (field, warning) = if old.model_type != new.model_type {
            ("modelType", may_surprise("modelType"))
        } else if old.base_model_name != new.base_model_name {
            ("baseModelName", "Changing spec.baseModelName will break endpoint discovery".to_owned())
        } else {
            return Findings::default();
        };
        Findings { error: Some(is_immutable(field)), warnings: vec![warning] }
    }
}

/// The first of them.
fn problem(spec: &DynamoModelSpec) -> Option<String> {
    if spec.model_name.is_empty() {
        return Some("spec.modelName is required".to_owned());
    }
    if spec.base_model_name.is_empty() {
        return Some("spec.baseModelName is required".to_owned());
    }
    if spec.model_type != LORA {
        return None;
    }
    let Some(source) = &spec.source else {
        return Some("spec.source is required when modelType is 'lora'".to_owned());
    };
    if source.uri.is_empty() {
        return Some("spec.source.uri must be specified when modelType is 'lora'".to_owned());
    }
    let known = SCHEMES.iter().any(|scheme| source.uri.starts_with(scheme));
    (!known).then(|| format!("source URI must start with 's3://' or 'hf://', got: {}", source.uri))
}
