//! Claims and arguments as Cedar's values (toolhive-auth §4.2, toolhive-0.63 §5.2).
//!
//! Values are built as expressions, never by Cedar's own reading of JSON: that takes an object with the member `__entity` for an entity, and one with
//! `__extn` for a call of an extension, and callers choose what is in their arguments.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

use aws_lc_rs::digest::{SHA256, digest};
use cedar_policy::RestrictedExpression;
use mcp_wire::Members;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::Denial;

/// Attributes of an entity, or members of a context.
pub(crate) type Attributes = BTreeMap<String, RestrictedExpression>;

/// The arguments of a call, by their names.
pub(crate) type Arguments<'a> = [(Cow<'a, str>, &'a RawValue)];

/// The deepest array or object of a claim that is still told; the claim's own value is at 0.
const DEPTH: usize = 10;

/// The most arguments of a call.
const ARGUMENTS: usize = 1_000;

/// The most digits behind the point of a decimal.
const FRACTION: usize = 4;

/// The member of a record that stands for what Cedar cannot hold.
const MARK: &str = "thv_unrepresentable";

/// The numbers that Cedar cannot hold so far: each of them differs from every other one.
static NONCE: AtomicI64 = AtomicI64::new(0);

/// The Cedar value of a claim; `None` for null. Whole numbers of the `local` user are Longs, all others are decimals.
pub(crate) fn claim(value: &Value, local: bool) -> Option<RestrictedExpression> {
    match value {
        Value::Number(number) if local && number.is_i64() => number.as_i64().map(RestrictedExpression::new_long),
        value => nested(value, 0),
    }
}

fn nested(value: &Value, depth: usize) -> Option<RestrictedExpression> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(flag) => RestrictedExpression::new_bool(*flag),
        Value::String(text) => RestrictedExpression::new_string(text.clone()),
        Value::Number(number) => self::number(number.as_f64().unwrap_or(f64::INFINITY)),
        Value::Array(_) | Value::Object(_) if depth > DEPTH => too_deep(value),
        Value::Array(items) => RestrictedExpression::new_set(items.iter().filter_map(|item| nested(item, depth + 1))),
        Value::Object(members) => record(members, depth),
    })
}

fn record(members: &Map<String, Value>, depth: usize) -> RestrictedExpression {
    let fields = members.iter().filter_map(|(name, value)| Some((name.clone(), nested(value, depth + 1)?)));
    new_record(fields)
}

fn new_record(fields: impl IntoIterator<Item = (String, RestrictedExpression)>) -> RestrictedExpression {
    // The only problem of a record is a repeated name, which no map has; a set is compared to nothing that policies expect.
    RestrictedExpression::new_record(fields).unwrap_or_else(|_| RestrictedExpression::new_set([]))
}

/// The arguments of a call by their names.
///
/// # Errors
/// They are too many: each becomes several values of Cedar's. Or two names differ only in case: a server that does not tell them apart would
/// act on the one that no policy looked at.
pub(crate) fn named(raw: &RawValue) -> Result<Members<'_>, Denial> {
    if !raw.get().starts_with('{') {
        return Ok(Members::default());
    }
    let unreadable = Denial::Refused("its arguments cannot be read");
    let members: Members<'_> = serde_json::from_str(raw.get()).map_err(|_| unreadable)?;
    if members.0.len() > ARGUMENTS {
        return Err(Denial::Refused("it has too many arguments for policies to look at"));
    }
    let mut folded: Vec<String> = members.0.iter().map(|(name, _)| fold(name)).collect();
    folded.sort_unstable();
    if folded.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Denial::Refused("two of its arguments have names that differ only in case"));
    }
    Ok(members)
}

/// The members that tell a policy of the arguments of a call: scalars by value, all others by their presence.
pub(crate) fn arguments(members: &Arguments<'_>) -> Attributes {
    let mut attributes = Attributes::new();
    let mut present = Vec::new();
    for (name, value) in members {
        match scalar(value) {
            Some(value) => drop(attributes.insert(format!("arg_{name}"), value)),
            None => present.push(format!("arg_{name}_present")),
        }
    }
    // An argument called `x_present` does not hide that there is an `x`.
    attributes.extend(present.into_iter().map(|name| (name, RestrictedExpression::new_bool(true))));
    attributes
}

fn scalar(raw: &RawValue) -> Option<RestrictedExpression> {
    let text = raw.get();
    match text.as_bytes().first()? {
        b'"' => Some(RestrictedExpression::new_string(serde_json::from_str(text).ok()?)),
        b't' | b'f' => Some(RestrictedExpression::new_bool(text == "true")),
        b'-' | b'0'..=b'9' => Some(number(text.parse().ok()?)),
        _ => None,
    }
}

/// A name without regard to case, in which more names are one than in any server's reading.
fn fold(name: &str) -> String {
    name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// A decimal where that is exact. Any other number becomes a mark that equals nothing, and with which no policy can calculate: rounded, it could pass
/// a limit; left out, a policy that forbids it would not apply.
fn number(number: f64) -> RestrictedExpression {
    // The shortest text that is this number, without an exponent.
    let text = number.to_string();
    match decimal(&text) {
        Some(decimal) => RestrictedExpression::new_decimal(decimal),
        None => new_record([
            (MARK.to_owned(), RestrictedExpression::new_string("number".to_owned())),
            ("text".to_owned(), RestrictedExpression::new_string(text)),
            ("nonce".to_owned(), RestrictedExpression::new_long(NONCE.fetch_add(1, Ordering::Relaxed))),
        ]),
    }
}

/// The text as Cedar writes a decimal, where it is one.
fn decimal(text: &str) -> Option<String> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let parts = format!("{whole}{fraction:0<FRACTION$}");
    (fraction.len() <= FRACTION && parts.parse::<i64>().is_ok()).then(|| format!("{whole}.{fraction}"))
}

/// The mark for what lies too deep: it equals only the mark of an equal value.
fn too_deep(value: &Value) -> RestrictedExpression {
    let mut value = value.clone();
    value.sort_all_objects();
    let hash = digest(&SHA256, value.to_string().as_bytes());
    let hex = hash.as_ref().iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    new_record([
        (MARK.to_owned(), RestrictedExpression::new_string("too_deep".to_owned())),
        ("digest".to_owned(), RestrictedExpression::new_string(hex)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_decimal_where_that_is_exact() {
        for (number, expected) in [
            (0.0, Some("0.0")),
            (-0.0, Some("-0.0")),
            (1.13, Some("1.13")),
            (100.0, Some("100.0")),
            (-0.0001, Some("-0.0001")),
            (1e14, Some("100000000000000.0")),
            (922_337_203_685_477.0, Some("922337203685477.0")),
            (922_337_203_685_478.0, None),
            (0.1 + 0.2, None),
            (100.000_01, None),
            (1e-7, None),
            (1e300, None),
            (f64::INFINITY, None),
            (f64::NAN, None),
        ] {
            assert_eq!(decimal(&number.to_string()).as_deref(), expected, "{number}");
        }
    }

    #[test]
    fn names_that_some_server_takes_for_one_fold_to_one() {
        for (a, b) in [("Path", "path"), ("\u{212a}ey", "key"), ("\u{17f}ub", "SUB"), ("É", "é")] {
            assert_eq!(fold(a), fold(b));
        }
        assert_ne!(fold("path"), fold("paths"));
    }
}
