//! The content of a typed object as bytes, which are equal for two objects of a type exactly if they serialise to the
//! same JSON.
//!
//! That is cheaper than the JSON: text is copied without looking for characters to escape, and numbers are not printed.

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use serde_json::Error;

use crate::digest::digest;

/// Collects the content of an object.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    said: Vec<u8>,
    /// The number of nulls and of empty lists and objects that it writes.
    pub(crate) empty: usize,
    /// The number of members below the top level.
    pub(crate) members: usize,
    /// The sum of the digests of their keys, but those of nulls; where it is asked for.
    pub(crate) keys: u64,
    /// The digest of the key whose value comes next.
    last: u64,
    /// A key is being written.
    in_key: bool,
    digests: bool,
}

impl PartialEq for Trace {
    fn eq(&self, other: &Self) -> bool {
        self.said == other.said
    }
}

impl Trace {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { said: Vec::with_capacity(capacity), ..Self::default() }
    }

    /// Digests the keys too.
    pub(crate) fn with_digests(self, digests: bool) -> Self {
        Self { digests, ..self }
    }

    pub(crate) fn member<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<(), Error> {
        self.text(b'k', key);
        value.serialize(self)
    }

    fn tag(&mut self, tag: u8) {
        self.said.push(tag);
    }

    fn bytes(&mut self, tag: u8, bytes: &[u8]) {
        self.said.push(tag);
        self.said.extend_from_slice(bytes);
    }

    /// A member that is not of the top level.
    fn counted(&mut self, key: &str) {
        self.members += 1;
        self.digest(key);
    }

    fn digest(&mut self, key: &str) {
        if self.digests {
            self.last = digest(key);
            self.keys = self.keys.wrapping_add(self.last);
        }
    }

    /// Each text is separated from the next by its length.
    fn text(&mut self, tag: u8, text: &str) {
        self.bytes(tag, &text.len().to_le_bytes());
        self.said.extend_from_slice(text.as_bytes());
    }

    fn null(&mut self) {
        self.empty += 1;
        self.keys = self.keys.wrapping_sub(std::mem::take(&mut self.last));
        self.tag(b'0');
    }

    fn begin(&mut self, tag: u8) -> Inside<'_> {
        self.tag(tag);
        self.last = 0;
        Inside { first: true, trace: self }
    }
}

/// The inside of a list or an object.
pub(crate) struct Inside<'t> {
    trace: &'t mut Trace,
    first: bool,
}

impl Inside<'_> {
    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.first = false;
        value.serialize(&mut *self.trace)
    }

    fn member<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<(), Error> {
        self.first = false;
        self.trace.counted(key);
        self.trace.member(key, value)
    }

    fn finish(self) {
        self.trace.empty += usize::from(self.first);
        self.trace.last = 0;
        self.trace.tag(b'.');
    }
}

macro_rules! number {
    ($($method:ident($type:ty) $tag:literal)*) => {
        $(fn $method(self, value: $type) -> Result<(), Error> {
            self.bytes($tag, &value.to_le_bytes());
            Ok(())
        })*
    };
}

impl<'t> Serializer for &'t mut Trace {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Inside<'t>;
    type SerializeTuple = Inside<'t>;
    type SerializeTupleStruct = Inside<'t>;
    type SerializeTupleVariant = Inside<'t>;
    type SerializeMap = Inside<'t>;
    type SerializeStruct = Inside<'t>;
    type SerializeStructVariant = Inside<'t>;

    number! {
        serialize_i8(i8) b'a' serialize_i16(i16) b'b' serialize_i32(i32) b'c' serialize_i64(i64) b'd'
        serialize_i128(i128) b'e' serialize_u8(u8) b'f' serialize_u16(u16) b'g' serialize_u32(u32) b'h'
        serialize_u64(u64) b'i' serialize_u128(u128) b'j' serialize_f32(f32) b'l' serialize_f64(f64) b'm'
    }

    fn serialize_bool(self, value: bool) -> Result<(), Error> {
        self.tag(if value { b'T' } else { b'F' });
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), Error> {
        self.text(b's', value.encode_utf8(&mut [0; 4]));
        Ok(())
    }

    fn serialize_str(self, value: &str) -> Result<(), Error> {
        if self.in_key {
            self.digest(value);
        }
        self.text(b's', value);
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Error> {
        self.bytes(b'y', &value.len().to_le_bytes());
        self.said.extend_from_slice(value);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.null();
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.null();
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        self.null();
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), Error> {
        self.text(b's', variant);
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.tag(b'{');
        self.counted(variant);
        self.member(variant, value)?;
        self.last = 0;
        self.tag(b'.');
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Inside<'t>, Error> {
        Ok(self.begin(b'['))
    }

    fn serialize_tuple(self, _: usize) -> Result<Inside<'t>, Error> {
        Ok(self.begin(b'['))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Inside<'t>, Error> {
        Ok(self.begin(b'['))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Inside<'t>, Error> {
        self.counted(variant);
        self.text(b'v', variant);
        Ok(self.begin(b'['))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Inside<'t>, Error> {
        Ok(self.begin(b'{'))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Inside<'t>, Error> {
        Ok(self.begin(b'{'))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Inside<'t>, Error> {
        self.counted(variant);
        self.text(b'v', variant);
        Ok(self.begin(b'{'))
    }
}

macro_rules! elements {
    ($($trait:ident $method:ident)*) => {
        $(impl $trait for Inside<'_> {
            type Ok = ();
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.element(value)
            }

            fn end(self) -> Result<(), Error> {
                self.finish();
                Ok(())
            }
        })*
    };
}

elements! {
    SerializeSeq serialize_element
    SerializeTuple serialize_element
    SerializeTupleStruct serialize_field
    SerializeTupleVariant serialize_field
}

macro_rules! members {
    ($($trait:ident)*) => {
        $(impl $trait for Inside<'_> {
            type Ok = ();
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Error> {
                self.member(key, value)
            }

            fn end(self) -> Result<(), Error> {
                self.finish();
                Ok(())
            }
        })*
    };
}

members! { SerializeStruct SerializeStructVariant }

impl SerializeMap for Inside<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.first = false;
        self.trace.members += 1;
        self.trace.tag(b'k');
        self.trace.in_key = true;
        key.serialize(&mut *self.trace)?;
        self.trace.in_key = false;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(&mut *self.trace)
    }

    fn end(self) -> Result<(), Error> {
        self.finish();
        Ok(())
    }
}
