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

/// Builds the conditions of a status. A condition whose status stays the same keeps its `lastTransitionTime`.
#[derive(Debug)]
pub struct Conditions<'a> {
    previous: &'a [Condition],
    generation: Option<i64>,
    now: Timestamp,
    set: BTreeMap<&'static str, Condition>,
}

/// Truncates a message to the length that the API server accepts.
pub fn fitting(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(MAX_MESSAGE));
    message
}

impl<'a> Conditions<'a> {
    /// Starts from the conditions of the last status, for an object of this generation.
    pub fn after(previous: Option<&'a Vec<Condition>>, generation: Option<i64>, now: Timestamp) -> Self {
        Self { previous: previous.map(Vec::as_slice).unwrap_or_default(), generation, now, set: BTreeMap::new() }
    }

    /// Sets the condition of this type; `reason` is one word in CamelCase.
    pub fn set(&mut self, type_: &'static str, status: ConditionStatus, reason: &str, message: impl Into<String>) {
        let status = status.as_str();
        let message = fitting(message.into());
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
    pub fn news(&self) -> impl Iterator<Item = &Condition> {
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
