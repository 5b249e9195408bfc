//! The conditions of a status under construction.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Longest message a condition may have, in bytes.
const MAX_MESSAGE: usize = 32_768;

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It is not known whether it holds.
    Unknown,
}

impl ConditionStatus {
    /// The value of the condition's `status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// The complete conditions of a status: those of the last status that are not set again are removed. A condition whose
/// status stays the same keeps its `lastTransitionTime`.
///
/// The field of the status must be a list of type `map` with the key `type`, so that several field managers may each
/// have their own conditions:
///
/// ```
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
/// use kube::CustomResource;
/// use portcullis_controller::{Action, ControllerError, Reconcile};
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// #[kube(group = "shop.example", version = "v1", kind = "Order", namespaced, status = "OrderStatus")]
/// struct OrderSpec {}
///
/// #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
/// struct OrderStatus {
///     #[serde(skip_serializing_if = "Option::is_none")]
///     #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
///     conditions: Option<Vec<Condition>>,
/// }
///
/// async fn reconcile(cx: Reconcile<Order>) -> Result<Action, ControllerError> {
///     let previous = cx.object.status.as_ref().and_then(|status| status.conditions.as_ref());
///     let mut conditions = cx.conditions(previous);
///     conditions.set("Ready", true, "Served", "the beer is on the table");
///     cx.apply_status(&OrderStatus { conditions: conditions.into_list() }).await?;
///     Ok(Action::await_change())
/// }
/// # drop(reconcile);
/// ```
#[derive(Debug)]
pub struct Conditions<'a> {
    previous: &'a [Condition],
    generation: Option<i64>,
    now: Timestamp,
    set: BTreeMap<&'static str, Condition>,
}

/// Truncates a message to the length that the API server accepts.
pub fn truncate_message(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(MAX_MESSAGE));
    message
}

impl<'a> Conditions<'a> {
    /// Creates empty conditions for an object of this generation; `previous` are those of the last status.
    /// [`Reconcile::conditions`](super::Reconcile::conditions) knows the generation and the time.
    pub fn new(previous: Option<&'a Vec<Condition>>, generation: Option<i64>, now: Timestamp) -> Self {
        Self { previous: previous.map(Vec::as_slice).unwrap_or_default(), generation, now, set: BTreeMap::new() }
    }

    /// Sets the condition of this type; `reason` is one word in CamelCase.
    pub fn set(
        &mut self,
        type_: &'static str,
        status: impl Into<ConditionStatus>,
        reason: &str,
        message: impl Into<String>,
    ) {
        let status = status.into().as_str();
        let message = truncate_message(message.into());
        let changed = self
            .previous
            .iter()
            .find(|condition| condition.type_ == type_ && condition.status == status)
            .map_or(Time(self.now), |condition| condition.last_transition_time.clone());
        let condition = Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: self.generation,
            last_transition_time: changed,
        };
        self.set.insert(type_, condition);
    }

    /// The conditions set so far whose status, reason or message differs from the last status.
    pub fn changed(&self) -> impl Iterator<Item = &Condition> {
        self.set.values().filter(|new| {
            !self.previous.iter().any(|old| {
                (&old.type_, &old.status, &old.reason, &old.message)
                    == (&new.type_, &new.status, &new.reason, &new.message)
            })
        })
    }

    /// The conditions, sorted by type; `None` if there are none.
    pub fn into_list(self) -> Option<Vec<Condition>> {
        if self.set.is_empty() { None } else { Some(self.set.into_values().collect()) }
    }
}
