//! What is checked of every kind of workload before anything is rendered, and what authors are told of it: in conditions
//! and at `kubectl apply`.

use mcp_api::{
    names::{condition, reason},
    v1beta1::{SessionStorage, SessionStorageProvider},
};
use mcp_plan::{guards::RequestedGuards, settings::Settings, workload::pod_template};
use serde_json::Value;

use super::{Findings, Workload};

/// Condition: fields without effect are set (`True` is the warning). Present only while they are.
pub const UNSUPPORTED_FIELDS: &str = "UnsupportedFields";
/// Condition: the proxy cannot speak what is asked for (`True` is the warning). Present only while that is so.
pub const TRANSPORT_UNSUPPORTED: &str = "TransportUnsupported";
/// Condition: replicas share their sessions as asked. Present only while they cannot.
const SESSION_STORAGE_READY: &str = "SessionStorageReady";

/// What a spec asks for and this version does not do.
#[derive(Clone, Debug, Default)]
pub struct Unsupported {
    /// Fields that are set and change nothing. None of them guards anything.
    pub fields: Vec<&'static str>,
    /// What the proxy cannot speak.
    pub transport: Option<&'static str>,
}

impl Unsupported {
    /// Of `fields`, and whether they are set, those that are.
    pub fn of(fields: &[(&'static str, bool)], transport: Option<&'static str>) -> Self {
        let fields = fields.iter().filter(|(_, is_set)| *is_set).map(|(field, _)| *field);
        Self { fields: fields.collect(), transport }
    }
}

/// `spec.podTemplateSpec`, which is merged into the pods whose own container is called `container`.
pub fn pod_template(template: Option<&Value>, container: &str, findings: &mut Findings<'_>) {
    let Some(template) = template else { return };
    match pod_template::decode(template, container) {
        Ok(template) => {
            let notes = template.notes();
            let message = if notes.is_empty() {
                "PodTemplateSpec is valid".to_owned()
            } else {
                format!("PodTemplateSpec is valid; {}", notes.join("; "))
            };
            findings.conditions.set(condition::POD_TEMPLATE_VALID, true, reason::POD_TEMPLATE_VALID, message);
        }
        Err(problem) => {
            findings.block(condition::POD_TEMPLATE_VALID, reason::POD_TEMPLATE_INVALID, problem.to_string());
        }
    }
}

/// Sessions of several proxies, which one of them alone knows.
pub fn sessions(replicas: Option<i32>, storage: Option<&SessionStorage>, findings: &mut Findings<'_>) {
    let replicas = replicas.unwrap_or(1);
    if replicas <= 1 {
        return;
    }
    if storage.is_some_and(|it| it.provider == SessionStorageProvider::Redis) {
        let message = format!(
            "spec.sessionStorage: the proxy of this version keeps no sessions in Redis, which {replicas} replicas need; set \
             spec.replicas to 1, or remove spec.sessionStorage to run without shared sessions"
        );
        findings.block(SESSION_STORAGE_READY, "SessionStorageNotBuilt", message);
    } else {
        let message = "spec.replicas is more than 1 and sessions are not shared across replicas";
        findings.conditions.set(condition::SESSION_STORAGE_WARNING, true, reason::SESSION_STORAGE_MISSING, message);
    }
}

/// What the spec asks for and this version does not do.
pub fn unsupported(unsupported: &Unsupported, findings: &mut Findings<'_>) {
    let Unsupported { fields, transport } = unsupported;
    if !fields.is_empty() {
        let message = format!("{} has no effect in this version", fields.join(", "));
        findings.conditions.set(UNSUPPORTED_FIELDS, true, "FieldsHaveNoEffect", message);
    }
    if let Some(what) = transport {
        let message = format!("the proxy of this version does not speak {what}; its pods will not become ready");
        findings.conditions.set(TRANSPORT_UNSUPPORTED, true, "TransportNotBuilt", message);
    }
}

/// The same as warnings at `kubectl apply`, and the guards that this version cannot enforce.
pub fn warnings<W: Workload>(workload: &W, unsupported: Unsupported, settings: &Settings) -> Vec<String> {
    let RequestedGuards { configs, unbuilt } = workload.guards();
    let unbuilt = configs.iter().filter(|guard| !guard.is_built(settings)).map(|guard| guard.field).chain(unbuilt);
    let mut warnings: Vec<String> =
        unbuilt.map(|field| format!("{field} cannot be enforced by this version: the server gets no proxy")).collect();
    let Unsupported { fields, transport } = unsupported;
    warnings.extend(fields.into_iter().map(|field| format!("{field} has no effect in this version")));
    warnings.extend(
        transport
            .map(|what| format!("the proxy of this version does not speak {what}: its pods will not become ready")),
    );
    warnings
}
