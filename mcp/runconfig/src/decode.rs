//! Reads JSON the way Go's decoder does, and names the path of what does not fit.
//!
//! The names of a struct's members match without regard to case; two that differ only in case are an error, as Go's decoder takes both for
//! one. Unlike there, underscores do not count either, so that `jwks_url` is `JWKSURL`. `null` is the same as absent; in a list or a map it is an
//! empty value.

use std::{collections::BTreeMap, fmt};

use serde::de::{
    DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor,
    value::{MapDeserializer, SeqDeserializer},
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

use crate::ParseError;
use crate::names::{Unknown, below, fold};

/// Reads `value`, which lies at `path` in its document (empty for the document itself).
pub(crate) fn read<T: DeserializeOwned>(value: Value, path: &str) -> Result<T, ParseError> {
    read_noting(value, path, &Unknown::default())
}

/// Reads `value` as [`read`] does, and notes the members that are not known.
pub(crate) fn read_noting<T: DeserializeOwned>(value: Value, path: &str, unknown: &Unknown) -> Result<T, ParseError> {
    let decoder = Decoder { value, path: path.to_owned(), unknown };
    serde_path_to_error::deserialize(decoder).map_err(|error| {
        let within = error.path().to_string();
        let ParseError { field, problem, fix } = error.into_inner();
        let parts = [path, if within == "." { "" } else { &within }, &field];
        let mut field = String::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            if !field.is_empty() && !part.starts_with('[') {
                field.push('.');
            }
            field.push_str(part);
        }
        ParseError::new(if field.is_empty() { "document" } else { &field }, problem, fix)
    })
}

/// Says that `found` stands where something else is wanted.
pub(crate) fn wrong_type(found: &Value, wanted: &str) -> String {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    format!("is {found}; write {wanted}")
}

fn mismatch(found: &Value, wanted: &str) -> ParseError {
    ParseError::custom(wrong_type(found, wanted))
}

/// A value that is not read yet. Its errors have the path from here; [`read`] puts the rest before it.
struct Decoder<'a> {
    value: Value,
    /// Its path in the document.
    path: String,
    unknown: &'a Unknown,
}

impl Decoder<'_> {
    fn below(&self, step: &str, value: Value) -> Self {
        Self { value, path: below(&self.path, step), unknown: self.unknown }
    }

    fn members(mut self) -> Result<impl Iterator<Item = (String, Self)>, ParseError> {
        let members = match self.value.take() {
            Value::Object(members) => members,
            Value::Null => Map::new(),
            other => return Err(mismatch(&other, "an object")),
        };
        Ok(members.into_iter().map(move |(key, value)| {
            let value = self.below(&key, value);
            (key, value)
        }))
    }

    fn integer<T: TryFrom<i128>>(&self, least: impl fmt::Display, most: impl fmt::Display) -> Result<T, ParseError> {
        let number = match &self.value {
            Value::Null => Some(0),
            Value::Number(number) => number.as_i64().map(i128::from).or(number.as_u64().map(i128::from)),
            _ => None,
        };
        let number = number.ok_or_else(|| mismatch(&self.value, "an integer without quotes"))?;
        T::try_from(number)
            .map_err(|_| ParseError::custom(format!("{number} is out of range; use an integer from {least} to {most}")))
    }
}

macro_rules! integers {
    ($($deserialize:ident $visit:ident $integer:ident),*) => {
        $(fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParseError> {
            visitor.$visit(self.integer($integer::MIN, $integer::MAX)?)
        })*
    };
}

impl<'de> Deserializer<'de> for Decoder<'_> {
    type Error = ParseError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParseError> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(flag) => visitor.visit_bool(flag),
            Value::String(text) => visitor.visit_string(text),
            Value::Array(_) => self.deserialize_seq(visitor),
            Value::Object(_) => self.deserialize_map(visitor),
            number @ Value::Number(_) => number.deserialize_any(visitor).map_err(ParseError::custom),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParseError> {
        match self.value {
            Value::Null => visitor.visit_bool(false),
            Value::Bool(flag) => visitor.visit_bool(flag),
            other => Err(mismatch(&other, "true or false")),
        }
    }

    integers! {
        deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32, deserialize_i64 visit_i64 i64,
        deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16, deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParseError> {
        match self.value {
            Value::Null => visitor.visit_str(""),
            Value::String(text) => visitor.visit_string(text),
            other => Err(mismatch(&other, "a string")),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParseError> {
        self.deserialize_string(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParseError> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &str, visitor: V) -> Result<V::Value, ParseError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, ParseError> {
        let items = match self.value.take() {
            Value::Array(items) => items,
            Value::Null => Vec::new(),
            other => return Err(mismatch(&other, "a list")),
        };
        let items = items.into_iter().enumerate().map(|(at, item)| self.below(&format!("[{at}]"), item));
        visitor.visit_seq(SeqDeserializer::new(items))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParseError> {
        visitor.visit_map(MapDeserializer::new(self.members()?))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParseError> {
        visitor.visit_unit()
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ParseError> {
        let mut known: BTreeMap<_, _> = fields.iter().map(|field| (fold(field), *field)).collect();
        let mut seen = BTreeMap::new();
        let (mut members, unknown) = (Vec::new(), self.unknown);
        for (key, value) in self.members()? {
            let folded = fold(&key);
            if let Some(other) = seen.insert(folded.clone(), key.clone()) {
                let problem = format!("stands beside {other:?}, which is the same member");
                return Err(ParseError::new(key, problem, "keep one of them"));
            }
            match known.remove(&folded) {
                Some(_) if value.value.is_null() => {}
                Some(field) => members.push((field.to_owned(), value)),
                None => {
                    if !value.value.is_null() {
                        unknown.note(&value.path, &key, fields);
                    }
                    members.push((key, value));
                }
            }
        }
        visitor.visit_map(MapDeserializer::new(members.into_iter()))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ParseError> {
        match &self.value {
            Value::String(text) if !variants.contains(&&**text) => {
                let words: Vec<_> =
                    variants.iter().filter(|word| !word.is_empty()).map(|word| format!("{word:?}")).collect();
                Err(ParseError::custom(format!("{text:?} is not known here; use one of {}", words.join(", "))))
            }
            // serde would take a word from an object, too.
            Value::Object(members) if members.values().all(Value::is_null) => Err(mismatch(&self.value, "a string")),
            Value::String(_) | Value::Object(_) => {
                self.value.deserialize_enum(name, variants, visitor).map_err(ParseError::custom)
            }
            other => Err(mismatch(other, "a string")),
        }
    }

    forward_to_deserialize_any! { i128 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct identifier }
}

impl IntoDeserializer<'_, ParseError> for Decoder<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Errors of a type's own say what is wrong and how to mend it, with a semicolon between the two.
impl serde::de::Error for ParseError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        let text = text.to_string();
        match text.split_once("; ") {
            Some((problem, fix)) => Self::new("", problem, fix),
            None => Self::new("", format!("does not fit: {text}"), "write what is taken here"),
        }
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(field, "is missing or empty", "set it")
    }

    fn unknown_field(_: &str, _: &'static [&'static str]) -> Self {
        Self::new("", "is not known to this proxy", "remove it, or use a proxy that has it")
    }
}
