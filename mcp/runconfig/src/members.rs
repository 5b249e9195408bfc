//! Reads the members of a JSON object the way Go's decoder does, and names the path of what does not fit.
//!
//! Keys match exactly, or else without regard to case; `null` is the same as absent; what nobody asked for is left
//! over and kept.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::ParseError;

/// The members of one object that have not been read yet.
pub(crate) struct Members {
    path: String,
    rest: Map<String, Value>,
}

impl Members {
    /// Starts reading `value`, which lies at `path` (empty for the document itself).
    pub(crate) fn of(value: Value, path: &str) -> Result<Self, ParseError> {
        match value {
            Value::Object(rest) => {
                let members = Self { path: path.to_owned(), rest };
                members.distinct()?;
                Ok(members)
            }
            Value::Null => Ok(Self { path: path.to_owned(), rest: Map::new() }),
            other => Err(wrong_type(if path.is_empty() { "document" } else { path }, &other, "an object")),
        }
    }

    /// Refuses two members that differ only in case: Go's decoder takes both for one, and the later would win there.
    fn distinct(&self) -> Result<(), ParseError> {
        let mut seen = BTreeMap::new();
        for key in self.rest.keys() {
            if let Some(other) = seen.insert(fold(key), key) {
                let problem = format!("stands beside {:?}, which is the same member", self.path(other));
                return Err(ParseError::new(self.path(key), problem, "keep one of them"));
            }
        }
        Ok(())
    }

    /// The path of a member of this object.
    pub(crate) fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Takes a member out; `None` when it is absent or null.
    pub(crate) fn value(&mut self, key: &str) -> Option<Value> {
        let found = if self.rest.contains_key(key) {
            key.to_owned()
        } else {
            self.rest.keys().find(|k| fold(k) == fold(key))?.clone()
        };
        self.rest.remove(&found).filter(|value| !value.is_null())
    }

    pub(crate) fn string(&mut self, key: &str) -> Result<Option<String>, ParseError> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(&self.path(key), &other, "a string")),
        }
    }

    pub(crate) fn required_string(&mut self, key: &str) -> Result<String, ParseError> {
        match self.string(key)? {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(ParseError::new(self.path(key), "is missing or empty", "set it to a non-empty string")),
        }
    }

    pub(crate) fn boolean(&mut self, key: &str) -> Result<bool, ParseError> {
        match self.value(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => Err(wrong_type(&self.path(key), &other, "true or false")),
        }
    }

    /// An integer within `min..=max`.
    pub(crate) fn integer<T>(&mut self, key: &str, min: i64, max: i64) -> Result<Option<T>, ParseError>
    where
        T: TryFrom<i64>,
    {
        let Some(value) = self.value(key) else { return Ok(None) };
        let Some(number) = value.as_i64() else {
            return Err(wrong_type(&self.path(key), &value, "an integer without quotes"));
        };
        match T::try_from(number) {
            Ok(fits) if (min..=max).contains(&number) => Ok(Some(fits)),
            _ => Err(ParseError::new(
                self.path(key),
                format!("{number} is out of range"),
                format!("use an integer from {min} to {max}"),
            )),
        }
    }

    pub(crate) fn list(&mut self, key: &str) -> Result<Vec<Value>, ParseError> {
        match self.value(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => Err(wrong_type(&self.path(key), &other, "a list")),
        }
    }

    pub(crate) fn strings(&mut self, key: &str) -> Result<Vec<String>, ParseError> {
        let items = self.list(key)?;
        items.into_iter().enumerate().map(|(at, item)| text(item, || format!("{}[{at}]", self.path(key)))).collect()
    }

    pub(crate) fn string_map(&mut self, key: &str) -> Result<BTreeMap<String, String>, ParseError> {
        let Some(value) = self.value(key) else { return Ok(BTreeMap::new()) };
        let Value::Object(entries) = value else {
            return Err(wrong_type(&self.path(key), &value, "an object of strings"));
        };
        entries
            .into_iter()
            .map(|(name, item)| {
                let item = text(item, || format!("{}.{name}", self.path(key)))?;
                Ok((name, item))
            })
            .collect()
    }

    /// One of a closed set of words.
    pub(crate) fn word<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Result<Option<T>, ParseError> {
        let Some(text) = self.string(key)?.filter(|text| !text.is_empty()) else { return Ok(None) };
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(Some(*value));
        }
        let known: Vec<_> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        Err(ParseError::new(
            self.path(key),
            format!("{text:?} is not known here"),
            format!("use one of {}", known.join(", ")),
        ))
    }

    /// What nobody asked for.
    pub(crate) fn rest(self) -> Map<String, Value> {
        self.rest
    }
}

/// What two names of members of one object share where Go's decoder takes one for the other. The names that are asked for are ASCII: besides
/// their capitals, only U+017F and U+212A are taken for letters of theirs.
pub fn fold(key: &str) -> String {
    let fold = |c: char| match c {
        '\u{17F}' => 's',
        '\u{212A}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    key.chars().map(fold).collect()
}

fn text(value: Value, path: impl Fn() -> String) -> Result<String, ParseError> {
    match value {
        Value::String(text) => Ok(text),
        Value::Null => Ok(String::new()),
        other => Err(wrong_type(&path(), &other, "a string")),
    }
}

pub(crate) fn wrong_type(path: &str, found: &Value, wanted: &str) -> ParseError {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    ParseError::new(path, format!("is {found}"), format!("write {wanted}"))
}
