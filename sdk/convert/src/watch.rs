//! Reads a typed object and records what its type ignores.
//!
//! A deserializer around another one. It copies no keys and keeps no paths: it says only *whether* something is passed
//! over, which is all that most objects need, and costs next to nothing.

/// Passes on the events unchanged.
macro_rules! visit {
    ($($method:ident($type:ty))*) => {
        $(fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$method(value)
        })*
    };
}

// Below the macro, which it uses too.
mod key;

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor};

use crate::digest::digest;
use crate::trace::Trace;
use key::Key;

/// Observations that were made while reading.
#[derive(Debug, Default)]
pub(crate) struct Notice {
    /// A value was read only to skip it: a member that the type does not know.
    unknown: Cell<bool>,
    /// The number of members. A type that reads more than it writes may have passed one over in a way that does not
    /// show otherwise: `#[serde(flatten)]` and untagged enums do.
    members: Cell<usize>,
    /// A value was read without an expected type, and may have been ignored later.
    buffered: Cell<bool>,
    /// The sum of the digests of all keys but those of nulls.
    keys: Cell<u64>,
    /// The digest of the key whose value comes next.
    last: Cell<u64>,
    /// The number of nulls and of empty lists and objects. Types often write none of them.
    empty: Cell<usize>,
}

impl Notice {
    /// Whether the type, whose output was traced, ignored something.
    pub(crate) fn passed_over(&self, trace: &Trace) -> bool {
        let other_members = if self.is_buffered() {
            // Equal numbers are no proof: a written default can make up for a member that was passed over.
            self.keys.get() != trace.keys
        } else {
            self.members.get() > trace.members
        };
        self.unknown.get() || other_members || self.empty.get() > trace.empty
    }

    /// Then the trace must have digests of its keys.
    pub(crate) fn is_buffered(&self) -> bool {
        self.buffered.get()
    }

    fn member(&self) {
        self.members.set(self.members.get() + 1);
        self.keys.set(self.keys.get().wrapping_add(self.last.get()));
    }

    fn null(&self) {
        self.empty();
        self.keys.set(self.keys.get().wrapping_sub(self.last.take()));
    }

    pub(crate) fn key(&self, text: &str) {
        self.last.set(digest(text));
    }

    fn empty(&self) {
        self.empty.set(self.empty.get() + 1);
    }
}

/// A serde type that is watched.
pub(crate) struct Watch<'n, X> {
    inner: X,
    notice: &'n Notice,
    /// Nothing was read yet of the list or object.
    first: bool,
}

impl<'n, X> Watch<'n, X> {
    pub(crate) fn new(inner: X, notice: &'n Notice) -> Self {
        Self { inner, notice, first: true }
    }
}

/// Passes on values that cannot have anything in them: they need no watching.
macro_rules! pass {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method(visitor)
        })*
    };
}

macro_rules! watch {
    ($($method:ident($($name:ident: $type:ty),*))*) => {
        $(fn $method<V: Visitor<'de>>(self, $($name: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method($($name,)* Watch::new(visitor, self.notice))
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Watch<'_, D> {
    type Error = D::Error;

    pass! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string
        deserialize_bytes deserialize_byte_buf deserialize_unit deserialize_identifier
    }

    watch! {
        deserialize_option() deserialize_seq() deserialize_map()
        deserialize_newtype_struct(name: &'static str)
        deserialize_tuple(len: usize)
        deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.notice.buffered.set(true);
        self.inner.deserialize_any(Watch::new(visitor, self.notice))
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit_struct(name, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.notice.unknown.set(true);
        self.inner.deserialize_ignored_any(visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Watch<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit! {
        visit_bool(bool) visit_i8(i8) visit_i16(i16) visit_i32(i32) visit_i64(i64) visit_i128(i128)
        visit_u8(u8) visit_u16(u16) visit_u32(u32) visit_u64(u64) visit_u128(u128)
        visit_f32(f32) visit_f64(f64) visit_char(char) visit_str(&str) visit_borrowed_str(&'de str)
        visit_string(String) visit_bytes(&[u8]) visit_borrowed_bytes(&'de [u8]) visit_byte_buf(Vec<u8>)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.notice.null();
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.notice.null();
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Watch::new(from, self.notice))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Watch::new(from, self.notice))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        self.notice.last.set(0);
        self.inner.visit_seq(Watch::new(elements, self.notice))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Watch::new(members, self.notice))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(Watch::new(variant, self.notice))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Watch<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Watch::new(from, self.notice))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Watch<'_, A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        let element = self.inner.next_element_seed(Watch::new(seed, self.notice))?;
        if std::mem::take(&mut self.first) && element.is_none() {
            self.notice.empty();
        }
        Ok(element)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Watch<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.notice.last.set(0);
        let key = self.inner.next_key_seed(Key { inner: seed, notice: self.notice })?;
        if key.is_some() {
            self.notice.member();
        } else if self.first {
            self.notice.empty();
        }
        self.first = false;
        Ok(key)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        let value = self.inner.next_value_seed(Watch::new(seed, self.notice))?;
        self.notice.last.set(0);
        Ok(value)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, 'n, A: EnumAccess<'de>> EnumAccess<'de> for Watch<'n, A> {
    type Error = A::Error;
    type Variant = Watch<'n, A::Variant>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self::Variant), A::Error> {
        self.notice.last.set(0);
        let (name, variant) = self.inner.variant_seed(Key { inner: seed, notice: self.notice })?;
        Ok((name, Watch::new(variant, self.notice)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Watch<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, A::Error> {
        self.notice.member();
        self.inner.newtype_variant_seed(Watch::new(seed, self.notice))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.notice.member();
        self.inner.tuple_variant(len, Watch::new(visitor, self.notice))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.notice.member();
        self.inner.struct_variant(fields, Watch::new(visitor, self.notice))
    }
}
