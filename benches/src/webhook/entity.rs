//! The kind that all servers serve: Entity of entity.example.com, in three versions that differ in how they write a name.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The value of `spec.username` that the mutating webhook replaces.
pub const OVERWRITE: &str = "overwrite";
/// The value that it writes there.
pub const OVERWRITTEN: &str = "random overwritten";
/// The label that it sets to `true` then.
pub const LABEL: &str = "entity.example.com/overwritten";
/// The value of `spec.username` that the validating webhook refuses.
pub const FORBIDDEN: &str = "forbidden";
/// The message of the refusal.
pub const REFUSAL: &str = "name may not be 'forbidden'";

/// One variable.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct EnvVar {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// One address.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Endpoint {
    pub name: String,
    pub host: String,
    pub port: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
}

/// One rule.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Rule {
    pub name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verbs: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// An address.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Contact {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

/// The status of every version.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names say it")]
pub struct EntityStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Hands a macro the fields that all versions share, by the shape of their types.
macro_rules! shared_fields {
    ($macro:ident! { $($arguments:tt)* }) => {
        $macro! {
            $($arguments)*
            optional {
                description: String, team: String, project: String, environment: String, region: String, zone: String,
                cost_center: String, image: String, version: String, log_level: String, schedule: String,
                timezone: String, storage_class: String, service_account_name: String, priority_class_name: String,
                cluster_domain: String, replicas: i32, min_replicas: i32, max_replicas: i32, port: i32,
                timeout_seconds: i32, retries: i32, retention_days: i32, paused: bool
            }
            lists { roles: String, groups: String, tags: String, weights: i32, env: EnvVar, endpoints: Endpoint, rules: Rule }
            maps { node_selector, parameters }
        }
    };
}

macro_rules! version {
    (
        $version:ident $text:literal { $($own:ident: $own_type:ty),* }
        optional { $($optional:ident: $optional_type:ty),* }
        lists { $($list:ident: $list_type:ty),* }
        maps { $($map:ident),* }
    ) => {
        #[doc = concat!("entity.example.com/", $text)]
        #[allow(missing_docs, reason = "the names say it")]
        pub mod $version {
            use super::*;

            /// The wanted state.
            #[derive(kube::CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
            #[kube(
                group = "entity.example.com",
                version = $text,
                kind = "Entity",
                plural = "entities",
                namespaced,
                status = "EntityStatus"
            )]
            #[serde(rename_all = "camelCase")]
            pub struct EntitySpec {
                pub username: String,
                $(#[serde(skip_serializing_if = "Option::is_none")] pub $own: Option<$own_type>,)*
                $(#[serde(skip_serializing_if = "Option::is_none")] pub $optional: Option<$optional_type>,)*
                #[serde(rename = "quotaMiB", skip_serializing_if = "Option::is_none")]
                pub quota_mib: Option<i64>,
                #[serde(default, rename = "allowedCIDRs", skip_serializing_if = "Vec::is_empty")]
                pub allowed_cidrs: Vec<String>,
                $(#[serde(default, skip_serializing_if = "Vec::is_empty")] pub $list: Vec<$list_type>,)*
                $(
                    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
                    pub $map: BTreeMap<String, String>,
                )*
            }
        }
    };
}

shared_fields!(version! { v1 "v1" { name: String, contact_email: String } });
shared_fields!(version! { v2 "v2" { firstname: String, lastname: String, contact_email: String } });
shared_fields!(version! { v3 "v3" { firstname: String, lastname: String, contact: Contact } });

/// An Entity of one version from another's: what is shared moves over, the rest is given.
macro_rules! moved {
    (
        $from:ident $to:ident { $($own:ident: $value:expr),* }
        optional { $($optional:ident: $optional_type:ty),* }
        lists { $($list:ident: $list_type:ty),* }
        maps { $($map:ident),* }
    ) => {
        $to::Entity {
            metadata: $from.metadata,
            status: $from.status,
            spec: $to::EntitySpec {
                username: $from.spec.username,
                quota_mib: $from.spec.quota_mib,
                allowed_cidrs: $from.spec.allowed_cidrs,
                $($own: $value,)*
                $($optional: $from.spec.$optional,)*
                $($list: $from.spec.$list,)*
                $($map: $from.spec.$map,)*
            },
        }
    };
}

/// Splits the name; what has no space is a first name.
pub fn v1_to_v3(from: v1::Entity) -> v3::Entity {
    let (first, last) = match from.spec.name {
        Some(name) => match name.split_once(' ') {
            Some((first, last)) => (Some(first.to_owned()), Some(last.to_owned())),
            None => (Some(name), None),
        },
        None => (None, None),
    };
    let contact = from.spec.contact_email.map(|email| Contact { email: Some(email) });
    shared_fields!(moved! { from v3 { firstname: first, lastname: last, contact: contact } })
}

/// Joins the name.
pub fn v3_to_v1(from: v3::Entity) -> v1::Entity {
    let name = match (from.spec.firstname, from.spec.lastname) {
        (Some(first), Some(last)) => Some(format!("{first} {last}")),
        (first, last) => first.or(last),
    };
    let email = from.spec.contact.and_then(|contact| contact.email);
    shared_fields!(moved! { from v1 { name: name, contact_email: email } })
}

/// Only the address moves.
pub fn v2_to_v3(from: v2::Entity) -> v3::Entity {
    let contact = from.spec.contact_email.map(|email| Contact { email: Some(email) });
    shared_fields!(
        moved! { from v3 { firstname: from.spec.firstname, lastname: from.spec.lastname, contact: contact } }
    )
}

/// Only the address moves.
pub fn v3_to_v2(from: v3::Entity) -> v2::Entity {
    let email = from.spec.contact.and_then(|contact| contact.email);
    shared_fields!(
        moved! { from v2 { firstname: from.spec.firstname, lastname: from.spec.lastname, contact_email: email } }
    )
}
