//! Workloads: the calls to send, and the answers to expect.

use serde_json::{Value, json};

use super::bodies::{Template, admission, conversion};
use super::entity::{FORBIDDEN, LABEL, OVERWRITE, OVERWRITTEN};
use super::objects::{Wanted, entity};

const SMALL: usize = 4_000;
const LARGE: usize = 10_000;

/// One kind of call.
#[derive(Debug)]
pub struct Workload {
    /// Names it on the command line and in the table.
    pub name: &'static str,
    /// Where it is sent, with the query that the API server adds.
    pub path: &'static str,
    /// The body of a call.
    pub body: Template,
    /// The expected answer.
    pub expected: Expected,
    /// Calls under way at the same time.
    pub callers: usize,
    /// The factor by which we want to be cheaper than controller-runtime.
    pub goal: f64,
}

/// The answer that a server has to give.
#[derive(Debug)]
pub enum Expected {
    /// Allowed, without a patch.
    Allowed,
    /// Refused with 403.
    Refused,
    /// Allowed with a patch that turns the object into another.
    Patched {
        /// As it was sent.
        before: Value,
        /// As it has to be.
        after: Value,
    },
    /// These objects, in this order.
    Converted(Vec<Value>),
}

impl Workload {
    /// Whether it is a conversion.
    pub fn converts(&self) -> bool {
        matches!(self.expected, Expected::Converted(_))
    }

    /// Whether the floor, which always allows and never converts, has a figure for it.
    pub fn has_floor(&self) -> bool {
        matches!(self.expected, Expected::Allowed | Expected::Converted(_))
    }

    /// The names of all, admission first.
    pub const NAMES: [&str; 10] = [
        "validate-4k",
        "validate-10k",
        "update-10k",
        "deny-4k",
        "mutate-none-10k",
        "mutate-patch-10k",
        "convert-1",
        "convert-1-to-v1",
        "convert-100",
        "convert-1500",
    ];

    /// The one of this name.
    pub fn named(name: &'static str) -> Option<Self> {
        let one = |bytes, username, stored| entity(Wanted { version: "v3", bytes, seed: 7, username, stored });
        let validate = |object: Value, old: Option<Value>, expected| Self {
            name,
            path: "/validate/entity?timeout=10s",
            body: admission(&object, old.as_ref()),
            expected,
            callers: 8,
            goal: 6.0,
        };
        let mutate = |object: &Value, expected, goal| Self {
            name,
            path: "/mutate/entity?timeout=10s",
            body: admission(object, None),
            expected,
            callers: 8,
            goal,
        };
        Some(match name {
            "validate-4k" => validate(one(SMALL, "jane", true), None, Expected::Allowed),
            "validate-10k" => validate(one(LARGE, "jane", true), None, Expected::Allowed),
            "update-10k" => validate(one(LARGE, "jane", true), Some(one(LARGE, "joan", true)), Expected::Allowed),
            "deny-4k" => validate(one(SMALL, FORBIDDEN, true), None, Expected::Refused),
            "mutate-none-10k" => mutate(&one(LARGE, "jane", false), Expected::Allowed, 6.0),
            "mutate-patch-10k" => {
                let before = one(LARGE, OVERWRITE, false);
                let mut after = before.clone();
                after["spec"]["username"] = OVERWRITTEN.into();
                after["metadata"]["labels"][LABEL] = "true".into();
                mutate(&before.clone(), Expected::Patched { before, after }, 10.0)
            }
            "convert-1" => convert(name, "v1", "v3", 1, 8, 6.0),
            "convert-1-to-v1" => convert(name, "v3", "v1", 1, 8, 6.0),
            "convert-100" => convert(name, "v1", "v3", 100, 8, 4.0),
            "convert-1500" => convert(name, "v1", "v3", 1500, 1, 4.0),
            _ => return None,
        })
    }
}

fn convert(name: &'static str, from: &str, to: &str, number: u64, callers: usize, goal: f64) -> Workload {
    let wanted = |seed| Wanted { version: from, bytes: LARGE, seed, username: "jane", stored: true };
    let objects: Vec<Value> = (0..number).map(|seed| entity(wanted(seed))).collect();
    let body = conversion(to, &objects);
    let expected = Expected::Converted(objects.into_iter().map(|object| converted(object, to)).collect());
    Workload { name, path: "/convert?timeout=30s", body, expected, callers, goal }
}

/// The object in the other version, worked out without any of the code that is measured.
fn converted(mut object: Value, to: &str) -> Value {
    object["apiVersion"] = format!("entity.example.com/{to}").into();
    if let Some(spec) = object["spec"].as_object_mut() {
        let mut take = |member: &str| spec.remove(member).unwrap_or_default();
        let own = if to == "v3" {
            let (name, email) = (take("name"), take("contactEmail"));
            let (first, last) = name.as_str().unwrap_or_default().split_once(' ').unwrap_or_default();
            json!({ "firstname": first, "lastname": last, "contact": { "email": email } })
        } else {
            let (first, last, contact) = (take("firstname"), take("lastname"), take("contact"));
            let name = [first, last].map(|part| part.as_str().unwrap_or_default().to_owned()).join(" ");
            json!({ "name": name, "contactEmail": contact["email"] })
        };
        spec.extend(own.as_object().cloned().unwrap_or_default());
    }
    object
}
