//! Reads an object that lacks fields, as server-side apply sends it: the type gets a placeholder for each missing
//! field.

use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value};

/// Values for fields that are missing.
#[derive(Clone, Copy)]
pub(crate) struct Filling {
    text: &'static str,
    number: u8,
    flag: bool,
}

const EMPTY: Filling = Filling { text: "", number: 0, flag: false };
const ONE: Filling = Filling { text: "1970-01-01T00:00:01Z", number: 1, flag: true };
const TWO: Filling = Filling { text: "1970-01-01T00:00:02Z", number: 2, flag: false };

/// Two placeholders each, which differ for every field that has more than one value. The second pair is for types that
/// refuse an empty text or zero, but accept a time.
pub(crate) const PAIRS: [[Filling; 2]; 2] = [[EMPTY, ONE], [ONE, TWO]];

/// A value with the fields that its type names, those that are missing filled in. Optional ones stay missing.
#[derive(Clone, Copy)]
pub(crate) struct Filled<'v> {
    pub(crate) value: Option<&'v Value>,
    pub(crate) filling: Filling,
}

impl<'v> IntoDeserializer<'v, Error> for Filled<'v> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Scalars: the value, or the placeholder of a missing one.
macro_rules! scalars {
    ($($method:ident)* => $visit:ident($field:ident)) => {
        $(fn $method<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.value {
                Some(value) => value.deserialize_any(visitor),
                None => visitor.$visit(self.filling.$field),
            }
        })*
    };
}

impl<'v> Deserializer<'v> for Filled<'v> {
    type Error = Error;

    scalars! { deserialize_any => visit_str(text) }
    scalars! { deserialize_bool => visit_bool(flag) }
    scalars! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128 deserialize_u8 deserialize_u16
        deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64 => visit_u8(number)
    }

    fn deserialize_option<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            None | Some(Value::Null) => visitor.visit_none(),
            Some(_) => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'v>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Error> {
        let elements = match self.value {
            Some(Value::Array(elements)) => elements.as_slice(),
            Some(value) => return value.deserialize_seq(visitor),
            None => &[],
        };
        visitor.visit_seq(SeqDeserializer::new(elements.iter().map(|element| Self { value: Some(element), ..self })))
    }

    fn deserialize_map<V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_struct("", &[], visitor)
    }

    fn deserialize_struct<V: Visitor<'v>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let members = match self.value {
            Some(Value::Object(members)) => Some(members),
            // An apply leaves null where it has removed everything.
            None | Some(Value::Null) => None,
            Some(_) => return Err(Error::invalid_type(Unexpected::Other("no object"), &visitor)),
        };
        let there = members.into_iter().flatten().map(|(key, value)| (key.as_str(), Some(value)));
        let absent = fields.iter().filter(|field| members.is_none_or(|members| !members.contains_key(**field)));
        let all = there.chain(absent.map(|field| (*field, None)));
        visitor.visit_map(MapDeserializer::new(all.map(|(key, value)| (key, Self { value, ..self }))))
    }

    fn deserialize_enum<V: Visitor<'v>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if let Some(value) = self.value {
            return value.deserialize_enum(name, variants, visitor);
        }
        let variant = variants.get(usize::from(self.filling.number)).or(variants.last());
        visitor.visit_enum(StrDeserializer::new(variant.copied().unwrap_or_default()))
    }

    forward_to_deserialize_any! {
        <V: Visitor<'v>>
        char str string bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}
