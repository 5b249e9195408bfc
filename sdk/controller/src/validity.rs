//! The condition `Valid`: what admission would have said, said in the status while webhooks are off.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use portcullis_manifest::words::INVALID;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::conditions::Conditions;
use super::reconciler::Reconciler;
use super::{ControllerError, EventType, Key, Kind, Observed, PlannedEvent};

/// Type of the condition that says whether the validators accept an object.
pub const VALID: &str = "Valid";
const PASSED: &str = "ValidationPassed";
const FAILED: &str = "ValidationFailed";

/// What validators say of a stored object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// What is wrong with it, in one sentence; `None` if it is valid.
    pub problem: Option<String>,
    /// What its author should know beside that.
    pub warnings: Vec<String>,
}

/// Validators that a controller evaluates on stored objects while webhooks are off. With the feature `webhook`,
/// `Webhooks` of `portcullis-webhook` implements it with the registered validators.
pub trait Validity: Send + Sync + 'static {
    /// Evaluates the object.
    ///
    /// # Errors
    /// When a validator could not decide: the object is evaluated again later, and its condition stays as it is.
    fn validate<'a>(&'a self, object: &'a Value) -> BoxFuture<'a, Result<Validation, String>>;
}

/// The rules of an operator whose webhooks are off.
pub(super) struct Validators {
    validity: Arc<dyn Validity>,
    /// What was said of objects that are there, with their uid: of those whose status keeps no such condition, it is
    /// said once all the same.
    told: Mutex<HashMap<Key, (String, String)>>,
}

impl Validators {
    pub(super) fn new(validity: Arc<dyn Validity>) -> Self {
        Self { validity, told: Mutex::default() }
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

impl<K: Kind> Reconciler<K> {
    /// Asks the validators about a stored object and tells their answer in its status. Returns what is wrong with it;
    /// it may be reconciled where nothing is.
    pub(super) async fn problem(
        &self,
        key: &Key,
        live: &Observed<K>,
        object: &K,
    ) -> Result<Option<String>, ControllerError> {
        let Some(validators) = &self.validators else {
            self.withdraw(live).await?;
            return Ok(None);
        };
        let Validation { problem, warnings } = validators
            .validity
            .validate(&typed::<K>(live))
            .await
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
        let (kind, described, invalid) = (K::kind(&()), live.describe(), problem.is_some());
        let told: Vec<&str> = invalid.then_some(&*message).into_iter().chain(warnings.iter().map(|it| &**it)).collect();
        let told = (!told.is_empty()).then(|| told.join("\n"));
        let is_news = validators.is_news(key, &live.uid, told.as_deref());
        if is_news {
            // Nobody makes a request that they could be an answer to.
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
