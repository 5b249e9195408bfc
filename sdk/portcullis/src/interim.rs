//! Webhook entries, until portcullis-manifest has them.
#![allow(missing_docs)]
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
#[derive(Clone, Debug)]
pub struct Webhook {
    pub name: String,
    pub kind: WebhookKind,
    pub path: String,
    pub rules: Vec<Rule>,
    pub failure_policy: FailurePolicy,
    pub timeout_seconds: u8,
    pub side_effects: SideEffects,
    pub match_policy: MatchPolicy,
    pub reinvocation: Option<()>,
    pub namespace_selector: Option<LabelSelector>,
    pub object_selector: Option<LabelSelector>,
    pub match_conditions: Vec<MatchCondition>,
}
#[derive(Clone, Debug)]
pub struct MatchCondition {
    pub name: String,
    pub expression: String,
}
#[derive(Clone, Debug)]
pub struct Rule {
    pub groups: Vec<String>,
    pub versions: Vec<String>,
    pub resources: Vec<String>,
    pub scope: Scope,
    pub operations: Vec<String>,
}
#[derive(Clone, Copy, Debug)]
pub enum WebhookKind {
    Validating,
    Mutating,
}
#[derive(Clone, Copy, Debug)]
pub enum FailurePolicy {
    Fail,
    Ignore,
}
#[derive(Clone, Copy, Debug)]
pub enum SideEffects {
    None,
    NoneOnDryRun,
}
#[derive(Clone, Copy, Debug)]
pub enum MatchPolicy {
    Exact,
    Equivalent,
}
#[derive(Clone, Copy, Debug)]
pub enum Scope {
    Namespaced,
    Cluster,
}
