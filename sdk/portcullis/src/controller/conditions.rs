//! The conditions of a status under construction.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Longest message a condition may have, in bytes.
const MAX_MESSAGE: usize = 32_768;

/// Collects conditions; those whose status stays keep the time of their last change.
#[derive(Debug)]
pub struct Conditions<'a> {
    previous: &'a [Condition],
    generation: Option<i64>,
    now: Timestamp,
    set: BTreeMap<&'static str, Condition>,
}

/// Cuts a message to what the API server takes.
pub fn fitting(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(MAX_MESSAGE));
    message
}

impl<'a> Conditions<'a> {
    /// Follows on those of the last status, for an object of this generation.
    pub fn after(previous: Option<&'a Vec<Condition>>, generation: Option<i64>, now: Timestamp) -> Self {
        Self { previous: previous.map(Vec::as_slice).unwrap_or_default(), generation, now, set: BTreeMap::new() }
    }

    /// Sets the condition of this type; `reason` is one word in CamelCase.
    pub fn set(&mut self, type_: &'static str, status: bool, reason: &str, message: impl Into<String>) {
        let status = if status { "True" } else { "False" };
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

    /// Those set now whose status, reason or message the last status did not have.
    pub fn news(&self) -> impl Iterator<Item = &Condition> {
        self.set.values().filter(|new| {
            !self.previous.iter().any(|old| {
                (&old.type_, &old.status, &old.reason, &old.message)
                    == (&new.type_, &new.status, &new.reason, &new.message)
            })
        })
    }

    /// The list, sorted by type; absent rather than empty.
    pub fn into_list(self) -> Option<Vec<Condition>> {
        if self.set.is_empty() { None } else { Some(self.set.into_values().collect()) }
    }
}
