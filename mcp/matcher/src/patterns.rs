//! The patterns of a matcher, compiled once for all callers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use cel::common::types::{CelBool, CelString};
use cel::{DeclarationError, Env, ExecutionError};
use regex::Regex;

/// Patterns by their texts.
pub(crate) type Patterns = BTreeMap<String, Regex>;

thread_local! {
    /// The patterns of the matcher that this thread evaluates: a function of CEL knows its arguments alone.
    static CURRENT: RefCell<Arc<Patterns>> = RefCell::default();
}

/// Has this thread find `patterns`.
pub(crate) fn set(patterns: &Arc<Patterns>) {
    CURRENT.set(Arc::clone(patterns));
}

/// Adds the function `matches`.
pub(crate) fn declare(environment: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(environment, fn matches: (CelString<'_>, CelString<'_>) -> Result<CelBool>, id = "matches")?;
    cel::add_member_overload!(environment, fn matches: (CelString<'_>, CelString<'_>) -> Result<CelBool>)
}

fn matches(text: &CelString<'_>, pattern: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    let found = CURRENT.with_borrow(|patterns| Some(patterns.get(pattern.inner())?.is_match(text.inner())));
    found.map(CelBool::from).ok_or_else(|| ExecutionError::FunctionError {
        function: "matches".to_owned(),
        message: "the pattern is none of the matcher".to_owned(),
    })
}
