//! The rules of an MCPWebhookConfig, and its translation into what the proxy reads.

use std::collections::BTreeMap;

use mcp_api::v1alpha1::{FailurePolicy, MCPWebhookConfigSpec, Webhook};
use mcp_plan::{
    problem::Problem,
    reference::{MountedFile, Reference, incomplete_key},
    settings::Settings,
    webhooks::{additions, field, files_of, reference_of, references, unheeded},
};
use mcp_runconfig::{
    duration,
    webhook::{self, Timeout, WebhookConfig},
};

/// Every rule the configuration breaks; empty when workloads may refer to it.
pub(super) fn problems(spec: &MCPWebhookConfigSpec) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut files = BTreeMap::new();
    for (kind, at, webhook) in each(spec) {
        let mut broken = |field: &str, message: &str| {
            let field_name = field.rsplit('.').next().unwrap_or(field);
            problems.push(Problem::new(
                format!("spec.{kind}[{at}].{field}"),
                format!("{kind} webhook[{at}] {:?}: {field_name} {message}", webhook.name),
            ));
        };
        let (config, named) = match translate(kind, webhook) {
            Ok(translated) => translated,
            Err(problem) => {
                broken("timeout", &problem);
                continue;
            }
        };
        for problem in config.problems() {
            broken(field(problem.field), &problem.message);
        }
        for (field, reference) in references(webhook) {
            if let Some(message) = incomplete_key(&reference.name, &reference.key) {
                broken(field, message);
            }
        }
        for file in named {
            let directory = file.directory.clone();
            if files.entry(directory).or_insert_with(|| file.clone()) != &file {
                broken("name", "collides with another webhook's files; choose another name");
            }
        }
    }
    if each(spec).next().is_none() {
        problems.push(Problem::new("spec", "at least one validating or mutating webhook must be defined"));
    }
    problems
}

/// The fields that the proxies' image does not heed.
pub(super) fn image_problems(spec: &MCPWebhookConfigSpec, settings: &Settings) -> Vec<Problem> {
    let fields = each(spec).flat_map(|(kind, at, webhook)| {
        unheeded(webhook, settings)
            .map(move |(field, message)| Problem::new(format!("spec.{kind}[{at}].{field}"), message))
    });
    fields.collect()
}

/// Translates one webhook into the proxy's document, and lists the files that it needs.
///
/// # Errors
/// A timeout that is not a duration.
fn translate(kind: &str, webhook: &Webhook) -> Result<(WebhookConfig, Vec<MountedFile>), String> {
    let nanos = match webhook.timeout.as_deref().filter(|timeout| !timeout.is_empty()) {
        None => 0,
        Some(text) => duration::parse(text).map_err(|error| error.to_string())?,
    };
    let (tls_config, hmac_secret_ref, files) = files_of(kind, webhook);
    let config = WebhookConfig {
        name: webhook.name.clone(),
        url: webhook.url.clone(),
        timeout: Timeout::from_nanos(nanos),
        failure_policy: match webhook.failure_policy {
            FailurePolicy::Fail => webhook::FailurePolicy::Fail,
            FailurePolicy::Ignore => webhook::FailurePolicy::Ignore,
        },
        tls_config,
        hmac_secret_ref,
        portcullis: additions(webhook),
    };
    Ok((config, files))
}

/// Both lists translated, as far as they can be: the mutating webhooks, the validating ones, and their files.
pub(super) fn translated(spec: &MCPWebhookConfigSpec) -> (Vec<WebhookConfig>, Vec<WebhookConfig>, Vec<MountedFile>) {
    let (mut mutating, mut validating, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for (kind, _, webhook) in each(spec) {
        let Ok((config, files)) = translate(kind, webhook) else { continue };
        let list = if kind == "mutating" { &mut mutating } else { &mut validating };
        list.push(config);
        all.extend(files);
    }
    (mutating, validating, all)
}

/// The Secrets that it names.
pub(super) fn secrets(spec: &MCPWebhookConfigSpec) -> Vec<Reference> {
    let each = each(spec).flat_map(|(kind, at, webhook)| {
        references(webhook).map(move |named| reference_of(webhook, &format!("spec.{kind}[{at}]"), named))
    });
    each.collect()
}

/// Every webhook, with its list and its place there.
pub(super) fn each(spec: &MCPWebhookConfigSpec) -> impl Iterator<Item = (&'static str, usize, &Webhook)> {
    let lists = [("validating", &spec.validating), ("mutating", &spec.mutating)];
    lists
        .into_iter()
        .flat_map(|(kind, list)| list.iter().flatten().enumerate().map(move |(at, webhook)| (kind, at, webhook)))
}
