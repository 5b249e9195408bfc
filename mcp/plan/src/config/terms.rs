//! The terms of a workload's reference to a configuration, beside the name.

use serde::{Serialize, de::DeserializeOwned};

/// The terms on which a workload uses a configuration, as the kind of the configuration wrote them and reads them again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms(String);

impl Terms {
    /// Writes the terms of a reference that says `own`.
    pub fn of<T: Serialize + Default + PartialEq>(own: &T) -> Self {
        if *own == T::default() {
            return Self::default();
        }
        Self(serde_json::to_string(own).unwrap_or_default())
    }

    /// Reads them, in the type that they were [written](Self::of) from.
    pub fn read<T: DeserializeOwned + Default>(&self) -> T {
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// The text of what it says; empty where it says nothing. Equal terms have equal texts.
    pub fn text(&self) -> &str {
        &self.0
    }
}
