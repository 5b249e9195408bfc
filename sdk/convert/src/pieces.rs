//! The input of an object's type: the members of the top level in pieces, each of them JSON.

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Error;

use crate::watch::{Notice, Watch};

/// The pieces of an object. Reading it does not join them.
#[derive(Clone, Copy)]
pub(crate) struct Pieces<'s> {
    pub(crate) api_version: &'s str,
    pub(crate) kind: &'s str,
    /// JSON.
    pub(crate) metadata: &'s str,
    /// The keys of the other members, and their values as JSON.
    pub(crate) members: &'s [(&'s str, &'s str)],
}

impl<'s> Pieces<'s> {
    /// Reads the object, and records whether its type ignores members, except the engine's.
    pub(crate) fn watched(self, notice: &'s Notice) -> Watched<'s> {
        Watched { source: self, notice }
    }

    /// The object as JSON.
    pub(crate) fn to_json(self) -> String {
        let mut json = Vec::new();
        crate::object::begin(&mut json, self.api_version, self.kind);
        json.extend_from_slice(self.metadata.as_bytes());
        for (key, value) in self.members {
            json.push(b',');
            crate::json::write_string(&mut json, key);
            json.push(b':');
            json.extend_from_slice(value.as_bytes());
        }
        json.push(b'}');
        crate::object::into_string(json)
    }
}

pub(crate) struct Watched<'s> {
    source: Pieces<'s>,
    notice: &'s Notice,
}

impl<'s> Deserializer<'s> for Watched<'s> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'s>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Members { of: self, next: 0 })
    }

    fn deserialize_option<V: Visitor<'s>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'s>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        <V: Visitor<'s>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

struct Members<'s> {
    of: Watched<'s>,
    next: usize,
}

impl<'s> MapAccess<'s> for Members<'s> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'s>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let key = match self.next {
            0 => "apiVersion",
            1 => "kind",
            2 => "metadata",
            next => match self.of.source.members.get(next - 3) {
                Some((key, _)) => key,
                None => return Ok(None),
            },
        };
        self.next += 1;
        seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'s>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let source = self.of.source;
        match self.next - 1 {
            0 => seed.deserialize(BorrowedStrDeserializer::new(source.api_version)),
            1 => seed.deserialize(BorrowedStrDeserializer::new(source.kind)),
            2 => seed.deserialize(&mut serde_json::Deserializer::from_str(source.metadata)),
            next => {
                let value = source.members.get(next - 3).map_or("null", |(_, value)| value);
                let mut value = serde_json::Deserializer::from_str(value);
                seed.deserialize(Watch::new(&mut value, self.of.notice))
            }
        }
    }
}
