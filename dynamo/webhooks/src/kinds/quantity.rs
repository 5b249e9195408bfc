//! An amount as Kubernetes writes it.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// An amount, as in `10Gi`. Users also write plain numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Quantity {
    /// `10`
    Number(i64),
    /// `10Gi`
    Text(String),
}

impl Quantity {
    /// Whether it is nothing, whatever its unit: `0`, `0Gi`, `0.0e3`.
    pub fn is_zero(&self) -> bool {
        match self {
            Self::Number(number) => *number == 0,
            Self::Text(text) => {
                let digits =
                    text.trim_start_matches(['+', '-']).chars().take_while(|c| c.is_ascii_digit() || *c == '.');
                digits.into_iter().all(|c| matches!(c, '0' | '.'))
            }
        }
    }
}

/// The schema of a field that may be absent.
pub(super) fn optional(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
    })
}
