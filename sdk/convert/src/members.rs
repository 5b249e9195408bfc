//! Serialises a typed object without the members that the engine writes itself: `apiVersion`, `kind` and `metadata`.
//!
//! A serializer for the top level only. Each member's value goes straight to `serde_json`, so nothing is built in
//! between, and the metadata, which the engine copies, is not written at all.

use std::fmt::Display;

use serde::ser::{Error as _, Impossible, Serialize, SerializeMap, SerializeStruct, Serializer};
use serde_json::Error;

use crate::json::write_string;
use crate::object::is_engines;
use crate::trace::Trace;

/// Appends the members other than the engine's as JSON, separated by commas.
pub(crate) fn write<T: Serialize>(object: &T, out: &mut Vec<u8>) -> Result<(), Error> {
    object.serialize(TopLevel { to: Json { start: out.len(), out }, key: None })
}

/// Traces the members other than the engine's.
pub(crate) fn trace<T: Serialize>(object: &T, trace: &mut Trace) -> Result<(), Error> {
    object.serialize(TopLevel { to: trace, key: None })
}

/// Takes the members one by one.
trait Take {
    fn member<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<(), Error>;
}

struct Json<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
}

impl Take for Json<'_> {
    fn member<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<(), Error> {
        if self.out.len() > self.start {
            self.out.push(b',');
        }
        write_string(self.out, key);
        self.out.push(b':');
        value.serialize(&mut serde_json::Serializer::new(&mut *self.out))
    }
}

impl Take for &mut Trace {
    fn member<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<(), Error> {
        Trace::member(self, key, value)
    }
}

struct TopLevel<M> {
    to: M,
    /// The key of the member whose value comes next; for maps.
    key: Option<String>,
}

impl<M: Take> TopLevel<M> {
    fn member<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<(), Error> {
        if is_engines(key) { Ok(()) } else { self.to.member(key, value) }
    }
}

impl<M: Take> SerializeStruct for TopLevel<M> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Error> {
        self.member(key, value)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

impl<M: Take> SerializeMap for TopLevel<M> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        match serde_json::to_value(key)? {
            serde_json::Value::String(key) => self.key = Some(key),
            _ => return Err(not_an_object()),
        }
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let key = self.key.take().ok_or_else(not_an_object)?;
        self.member(&key, value)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

fn not_an_object() -> Error {
    Error::custom("the type of a version must write a JSON object")
}

/// Refuses values that cannot be the top level of an object.
macro_rules! refuse {
    ($($method:ident($($argument:ty),*) $(-> $ok:ty)?;)*) => {
        $(fn $method(self, $(_: $argument),*) -> Result<refuse!(@ $($ok)?), Error> { Err(not_an_object()) })*
    };
    (@) => { () };
    (@ $ok:ty) => { $ok };
}

impl<M: Take> Serializer for TopLevel<M> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Impossible<(), Error>;
    type SerializeTuple = Impossible<(), Error>;
    type SerializeTupleStruct = Impossible<(), Error>;
    type SerializeTupleVariant = Impossible<(), Error>;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Impossible<(), Error>;

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Error> {
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, Error> {
        Ok(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), Error> {
        Err(not_an_object())
    }

    fn collect_str<T: Display + ?Sized>(self, _: &T) -> Result<(), Error> {
        Err(not_an_object())
    }

    refuse! {
        serialize_bool(bool); serialize_i8(i8); serialize_i16(i16); serialize_i32(i32); serialize_i64(i64);
        serialize_u8(u8); serialize_u16(u16); serialize_u32(u32); serialize_u64(u64);
        serialize_f32(f32); serialize_f64(f64); serialize_char(char); serialize_str(&str); serialize_bytes(&[u8]);
        serialize_none(); serialize_unit(); serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
        serialize_seq(Option<usize>) -> Self::SerializeSeq;
        serialize_tuple(usize) -> Self::SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant;
    }
}
