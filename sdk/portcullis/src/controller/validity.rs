//! The condition `Valid`: what admission would have said, said in the status while webhooks are off.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::conditions::Conditions;
use super::work::Kit;
use super::{ControllerError, EventType, Key, Kind, Observed, PlannedEvent};
use crate::webhooks::{Judgement, Webhooks};
use crate::words::INVALID;

/// Type of the condition that says whether the validators accept an object.
pub const VALID: &str = "Valid";
const PASSED: &str = "ValidationPassed";
const FAILED: &str = "ValidationFailed";

/// The validators of an operator whose webhooks are off.
pub(super) struct Validators {
    webhooks: Webhooks,
    /// What was said of objects that are there, with their uid: of those whose status keeps no such condition, it is
    /// said once all the same.
    told: Mutex<HashMap<Key, (String, String)>>,
}

impl Validators {
    pub(super) fn new(webhooks: Webhooks) -> Self {
        Self { webhooks, told: Mutex::default() }
    }

    /// Whether this is news. What the condition says already is not, whoever wrote it.
    pub(super) fn is_news(&self, key: &Key, uid: &str, message: Option<&str>) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(message) = message else { return told.remove(key).is_some() };
        let now = (uid.to_owned(), message.to_owned());
        let before = told.insert(key.clone(), now.clone());
        before != Some(now)
    }

    /// An object is gone, or going.
    pub(super) fn forget(&self, key: &Key) {
        self.is_news(key, "", None);
    }
}

impl<K: Kind> Kit<K> {
    /// Asks the validators about a stored object and tells their answer in its status. Returns whether it may be
    /// reconciled.
    pub(super) async fn is_valid(&self, key: &Key, live: &Observed<K>, object: &K) -> Result<bool, ControllerError> {
        let Some(validators) = &self.validators else {
            self.withdraw(live).await?;
            return Ok(true);
        };
        let problem = problem(validators.webhooks.explain(&typed::<K>(live)).await)
            .map_err(|problem| ControllerError::Undecided { object: live.describe(), problem })?;
        let (reason, message) = match &problem {
            Some(problem) => (FAILED, format!("Validation failed: {problem}")),
            None => (PASSED, format!("{} spec is valid", K::kind(&()))),
        };
        let previous = conditions(&live.status(None).value);
        let mut conditions = Conditions::after(Some(&previous), object.meta().generation, Timestamp::now());
        conditions.set(VALID, problem.is_none().into(), reason, message.clone());
        let changed = conditions.news().next().is_some();
        let status = json!({ "conditions": conditions.into_list() });
        let (manager, held) = (&self.writer.managers.validity, live.held_validity.as_deref());
        self.written(live, None, self.writer.status(live, manager, held, status)).await?;
        let invalid = problem.is_some();
        if validators.is_news(key, &live.uid, invalid.then_some(&*message)) && changed && invalid {
            let (kind, described) = (K::kind(&()), live.describe());
            warn!(object = described, problem = message, "{kind} {INVALID}");
            info!(object = described, "{kind} is invalid, not reconciling until spec is fixed");
            self.events.publish(object, &[PlannedEvent::new(EventType::Warning, FAILED, &message)]).await;
        }
        Ok(!invalid)
    }

    /// Takes back what was said while webhooks were off.
    async fn withdraw(&self, live: &Observed<K>) -> Result<(), ControllerError> {
        let Some(held) = live.held_validity.as_deref() else { return Ok(()) };
        let write = self.writer.status(live, &self.writer.managers.validity, Some(held), json!({}));
        self.written(live, None, write).await?;
        Ok(())
    }
}

/// The object as the API server would send it: with its type.
fn typed<K: Kind>(live: &Observed<K>) -> Value {
    let mut json = live.json();
    json["apiVersion"] = json!(K::api_version(&()));
    json["kind"] = json!(K::kind(&()));
    json
}

/// The conditions of a status, as far as they are conditions.
fn conditions(status: &Value) -> Vec<Condition> {
    let all = status.get("conditions").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|condition| serde_json::from_value(condition.clone()).ok()).collect()
}

/// What all of them find wrong; an error when one of them came to no verdict.
fn problem(judgements: Vec<Judgement>) -> Result<Option<String>, String> {
    let mut problems = Vec::new();
    for Judgement { webhook, verdict, .. } in judgements {
        let verdict = verdict.map_err(|problem| format!("webhook {webhook}: {problem}"))?;
        let Some(denial) = verdict.denial() else { continue };
        let mut text = denial.message().to_owned();
        for cause in denial.causes().iter().filter(|cause| !denial.message().contains(cause.message())) {
            text = format!("{text}; {}: {}", cause.field(), cause.message());
        }
        problems.push(text);
    }
    Ok((!problems.is_empty()).then(|| problems.join("; ")))
}
