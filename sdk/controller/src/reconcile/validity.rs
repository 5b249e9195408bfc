//! The condition `Valid`: the result of the validators, in the status while webhooks are off.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use portcullis_manifest::messages::INVALID;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::reconciler::Reconciler;
use crate::conditions::Conditions;
use crate::{ControllerError, EventType, Key, Kind, Observed, PlannedEvent, VALID, Validation};

const PASSED: &str = "ValidationPassed";
const FAILED: &str = "ValidationFailed";

impl<K: Kind> Reconciler<K> {
    /// Validates a stored object and writes the result to its status. Returns what is wrong with it;
    /// it may be reconciled where nothing is.
    pub(super) async fn problem(
        &self,
        key: &Key,
        live: &Observed<K>,
        object: &K,
    ) -> Result<Option<String>, ControllerError> {
        let Some(offline) = &self.offline else {
            self.withdraw(live).await?;
            return Ok(None);
        };
        let Validation { problem, warnings } = offline
            .validators
            .validate(&typed::<K>(live))
            .await
            .map_err(|problem| ControllerError::Validation { object: live.describe(), problem })?;
        // Validators take time, and the handover of a namespace does not wait for them.
        self.may_write(live).await?;
        let (reason, message) = match &problem {
            Some(problem) => (FAILED, format!("Validation failed: {problem}")),
            None => (PASSED, format!("{} spec is valid", K::kind(&()))),
        };
        let previous = conditions(&live.status(None).value);
        let mut conditions = Conditions::new(Some(&previous), object.meta().generation, Timestamp::now());
        conditions.set(VALID, problem.is_none(), reason, message.clone());
        let changed = conditions.changed().next().is_some();
        let status = json!({ "conditions": conditions.into_list() });
        let (manager, held) = (&self.writer.managers.validity, live.held_validity.as_deref());
        self.written(self.writer.status(live, manager, held, status)).await?;
        let (kind, described, invalid) = (K::kind(&()), live.describe(), problem.is_some());
        let report: Vec<&str> =
            invalid.then_some(&*message).into_iter().chain(warnings.iter().map(|it| &**it)).collect();
        let report = (!report.is_empty()).then(|| report.join("\n"));
        let is_news = offline.is_news(key, &live.uid, report.as_deref());
        if is_news {
            // Warnings go to the log, because there is no request that could be answered with them.
            for warning in &warnings {
                info!(object = described, warning, "Validation warning");
            }
        }
        if is_news && changed && invalid {
            warn!(object = described, problem = message, "{kind} {INVALID}");
            info!(object = described, "{kind} is invalid, not reconciling until spec is fixed");
            self.events.publish(object, &[PlannedEvent::new(EventType::Warning, FAILED, &message)]).await;
        }
        Ok(problem)
    }

    /// Removes the condition that was written while webhooks were off.
    async fn withdraw(&self, live: &Observed<K>) -> Result<(), ControllerError> {
        let Some(held) = live.held_validity.as_deref() else { return Ok(()) };
        let write = self.writer.status(live, &self.writer.managers.validity, Some(held), json!({}));
        self.written(write).await?;
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
