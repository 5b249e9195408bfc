//! Conversion of every version to the stored one and back.
//!
//! The status is the same in every version. Metadata stays as it is whatever these functions do, and a field that a version
//! lacks (the birthday, in `v1` and `v2`) is kept in an annotation until the object is back in a version that has it.

use portcullis::conversion::Convert;

use crate::{v1, v2, v3};

/// The hub `v3`, with `v1` and `v2` as spokes.
pub(crate) fn conversion() -> Convert<v3::Entity> {
    Convert::hub().spoke(v1_to_v3, v3_to_v1).spoke(v2_to_v3, v3_to_v2)
}

fn v1_to_v3(from: v1::Entity) -> v3::Entity {
    let v1::EntitySpec { name, username } = from.spec;
    let (firstname, lastname) = name.split_once(' ').unwrap_or((&name, ""));
    let spec = v3::EntitySpec { firstname: firstname.into(), lastname: lastname.into(), username, birthday: None };
    v3::Entity { metadata: from.metadata, status: from.status, spec }
}

fn v3_to_v1(from: v3::Entity) -> v1::Entity {
    let v3::EntitySpec { firstname, lastname, username, birthday: _ } = from.spec;
    // A single name comes back as it was, without a space behind it.
    let name = if lastname.is_empty() { firstname } else { format!("{firstname} {lastname}") };
    v1::Entity { metadata: from.metadata, status: from.status, spec: v1::EntitySpec { name, username } }
}

fn v2_to_v3(from: v2::Entity) -> v3::Entity {
    let v2::EntitySpec { firstname, lastname, username } = from.spec;
    v3::Entity {
        metadata: from.metadata,
        status: from.status,
        spec: v3::EntitySpec { firstname, lastname, username, birthday: None },
    }
}

fn v3_to_v2(from: v3::Entity) -> v2::Entity {
    let v3::EntitySpec { firstname, lastname, username, birthday: _ } = from.spec;
    v2::Entity { metadata: from.metadata, status: from.status, spec: v2::EntitySpec { firstname, lastname, username } }
}
