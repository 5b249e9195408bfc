//! A reader that skips `metadata.managedFields`. They are often half of an object and of no
//! use to a handler, and to decode them costs more than to decode all the rest.
//!
//! It stands between the text and the type, and looks at the keys of two objects: those of the document and those of
//! its metadata. So nothing is copied or read twice, and the type sees the rest unchanged.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::{BorrowedStrDeserializer, CowStrDeserializer};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

/// The object that is read next.
#[derive(Clone, Copy)]
enum Level {
    Document,
    Metadata,
}

/// Wraps `from` so that managed fields are skipped.
pub(crate) fn without_managed_fields<'de, D: Deserializer<'de>>(from: D) -> impl Deserializer<'de, Error = D::Error> {
    Past { inner: from, level: Level::Document }
}

/// A deserializer, a visitor, a seed or the access to a map, at a level.
struct Past<I> {
    inner: I,
    level: Level,
}

macro_rules! forward {
    ($($method:ident($($argument:ident: $type:ty),*))*) => {
        $(fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method($($argument,)* visitor)
        })*
    };
}

macro_rules! forward_wrapped {
    ($($method:ident($($argument:ident: $type:ty),*))*) => {
        $(fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method($($argument,)* Past { inner: visitor, level: self.level })
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Past<D> {
    type Error = D::Error;

    // These may meet an object.
    forward_wrapped! {
        deserialize_any()
        deserialize_map()
        deserialize_option()
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_newtype_struct(name: &'static str)
    }

    forward! {
        deserialize_bool() deserialize_char() deserialize_str() deserialize_string() deserialize_bytes()
        deserialize_byte_buf() deserialize_unit() deserialize_seq() deserialize_identifier() deserialize_ignored_any()
        deserialize_i8() deserialize_i16() deserialize_i32() deserialize_i64() deserialize_i128()
        deserialize_u8() deserialize_u16() deserialize_u32() deserialize_u64() deserialize_u128()
        deserialize_f32() deserialize_f64()
        deserialize_unit_struct(name: &'static str)
        deserialize_tuple(length: usize)
        deserialize_tuple_struct(name: &'static str, length: usize)
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! visit {
    ($($method:ident($type:ty))*) => {
        $(fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$method(value)
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Past<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit! {
        visit_bool(bool) visit_char(char)
        visit_i8(i8) visit_i16(i16) visit_i32(i32) visit_i64(i64) visit_i128(i128)
        visit_u8(u8) visit_u16(u16) visit_u32(u32) visit_u64(u64) visit_u128(u128)
        visit_f32(f32) visit_f64(f64)
        visit_str(&str) visit_borrowed_str(&'de str) visit_string(String)
        visit_bytes(&[u8]) visit_borrowed_bytes(&'de [u8]) visit_byte_buf(Vec<u8>)
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Past { inner: from, level: self.level })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Past { inner: from, level: self.level })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, sequence: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(sequence)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(data)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Members { map, level: self.level, in_metadata: false })
    }
}

/// The members of the document, or those of its metadata.
struct Members<A> {
    map: A,
    level: Level,
    /// Whether the value that comes next is the document's metadata.
    in_metadata: bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Members<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        loop {
            let Some(Key(key)) = self.map.next_key::<Key<'de>>()? else { return Ok(None) };
            match self.level {
                Level::Document => self.in_metadata = key == "metadata",
                Level::Metadata if key == "managedFields" => {
                    self.map.next_value::<IgnoredAny>()?;
                    continue;
                }
                Level::Metadata => {}
            }
            return match key {
                Cow::Borrowed(key) => seed.deserialize(BorrowedStrDeserializer::new(key)),
                Cow::Owned(_) => seed.deserialize(CowStrDeserializer::new(key)),
            }
            .map(Some);
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        if self.in_metadata {
            self.in_metadata = false;
            return self.map.next_value_seed(Past { inner: seed, level: Level::Metadata });
        }
        self.map.next_value_seed(seed)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Past<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Past { inner: from, level: self.level })
    }
}

/// A key, copied only where it is written with escapes.
struct Key<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E: Error>(self, key: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(key)))
            }

            fn visit_str<E: Error>(self, key: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }
        }
        from.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    fn read<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, String> {
        T::deserialize(without_managed_fields(&mut serde_json::Deserializer::from_str(text)))
            .map_err(|error| error.to_string())
    }

    #[derive(Deserialize, Debug, PartialEq)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        name: Option<String>,
        managed_fields: Option<Vec<Value>>,
    }

    #[derive(Deserialize, Debug, PartialEq)]
    struct Object {
        metadata: Option<Metadata>,
        #[serde(flatten)]
        rest: BTreeMap<String, Value>,
    }

    #[derive(Deserialize)]
    struct Wrapped(Object);

    #[test]
    fn managed_fields_of_the_metadata_are_not_seen_and_all_else_is() {
        let cases = [
            (r#"{"metadata":{"managedFields":[{"f:a":{}}]}}"#, r#"{"metadata":{}}"#),
            (r#"{"metadata":{"managedFields":[],"name":"a"},"spec":1}"#, r#"{"metadata":{"name":"a"},"spec":1}"#),
            (
                r#"{"metadata":{"a":1,"managedFields":null,"b":{"managedFields":1}},"managedFields":2}"#,
                r#"{"metadata":{"a":1,"b":{"managedFields":1}},"managedFields":2}"#,
            ),
            (r#"{"m\u0065tadata":{"managed\u0046ields":1}}"#, r#"{"metadata":{}}"#),
            (r#"{"metadata":{"managedFields":1,"managedFields":2,"a":3}}"#, r#"{"metadata":{"a":3}}"#),
            (r#"{"spec":{"metadata":{"managedFields":1}}}"#, r#"{"spec":{"metadata":{"managedFields":1}}}"#),
            (r#"{"metadata":[{"managedFields":1}]}"#, r#"{"metadata":[{"managedFields":1}]}"#),
            (
                r#"{"metadata":null,"a":[1,-2,1.5,"x\n",true,null]}"#,
                r#"{"metadata":null,"a":[1,-2,1.5,"x\n",true,null]}"#,
            ),
            ("7", "7"),
            (r#""a""#, r#""a""#),
        ];
        for (object, expected) in cases {
            assert_eq!(read::<Value>(object).unwrap(), serde_json::from_str::<Value>(expected).unwrap(), "{object}");
        }
    }

    #[test]
    fn types_of_every_make_read_past_them() {
        let text = r#"{"kind":"Entity","metadata":{"managedFields":[{}],"name":"a"},"spec":{"managedFields":1}}"#;
        let object: Object = read(text).unwrap();
        let metadata = Metadata { name: Some("a".into()), managed_fields: None };
        let rest = [("kind".to_owned(), json!("Entity")), ("spec".to_owned(), json!({ "managedFields": 1 }))];
        assert_eq!(object, Object { metadata: Some(metadata), rest: rest.into() });

        assert_eq!(read::<Wrapped>(text).unwrap().0, object);
        assert_eq!(read::<Option<Object>>(text).unwrap().unwrap(), object);
        assert_eq!(read::<BTreeMap<String, Value>>(text).unwrap()["metadata"], json!({ "name": "a" }));
    }

    #[test]
    fn a_value_that_does_not_fit_is_reported_as_missing() {
        for text in
            [r#"{"metadata":{"name":7}}"#, "[]", r#"{"metadata":true}"#, r#"{"metadata":{"managedFields":["#, "{"]
        {
            let without = serde_json::from_str::<Object>(text).unwrap_err().to_string();
            assert_eq!(read::<Object>(text).unwrap_err(), without, "{text}");
        }
    }
}
