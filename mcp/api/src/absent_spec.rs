//! A macro that lets an object without a `spec` decode.

/// Implements serde for a spec that derives it with `#[serde(remote = "Self")]`, reading an absent spec as the default.
///
/// The contract's schemas do not require `spec`, so the API server stores objects without one. A watch that cannot
/// decode one object delivers none, so they have to be read; the controllers then report what is missing.
macro_rules! absent_spec_is_default {
    ($spec:ident) => {
        impl<'de> ::serde::Deserialize<'de> for $spec {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;

                impl<'de> ::serde::de::Visitor<'de> for Visitor {
                    type Value = $spec;

                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str("a spec")
                    }

                    fn visit_none<E>(self) -> Result<$spec, E> {
                        Ok($spec::default())
                    }

                    fn visit_unit<E>(self) -> Result<$spec, E> {
                        Ok($spec::default())
                    }

                    // The derived function, which `remote = "Self"` leaves as an inherent one.
                    fn visit_some<D: ::serde::Deserializer<'de>>(self, deserializer: D) -> Result<$spec, D::Error> {
                        $spec::deserialize(deserializer)
                    }
                }

                deserializer.deserialize_option(Visitor)
            }
        }

        impl ::serde::Serialize for $spec {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $spec::serialize(self, serializer)
            }
        }
    };
}
