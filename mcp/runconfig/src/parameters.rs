//! Parameters of middleware: each type's own, read from the document with errors that name the member.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

use crate::{ParseError, decode};

/// The type that a middleware's `parameters` are read into. Any type that serde can deserialize is one; below flattened members and tagged
/// enums, names of members are read as they are written.
pub trait Parameters: Sized {
    /// Reads `value`, which lies at `path` in its document, as Go's decoder does: blind to the case of a member's name, and with an error where two
    /// names differ only in case. Null counts as an object without members.
    ///
    /// # Errors
    /// Names the member, what is wrong with it and what to write instead.
    fn read(value: Value, path: &str) -> Result<Self, ParseError>;
}

impl<P: DeserializeOwned> Parameters for P {
    fn read(value: Value, path: &str) -> Result<Self, ParseError> {
        decode::read(value, path)
    }
}

/// Parameters of a middleware that takes none; members that it does not know are left alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoParameters;

impl Parameters for NoParameters {
    fn read(_: Value, _: &str) -> Result<Self, ParseError> {
        Ok(Self)
    }
}

/// Parameters of `bodylimit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct BodyLimitParameters {
    /// The longest request body in bytes; `None` where the default holds: ToolHive takes 0 and less for it.
    #[serde(deserialize_with = "positive")]
    pub max_bytes: Option<u64>,
}

/// Parameters of `origin`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct OriginParameters {
    /// The values of `Origin` that are let in; empty where the default holds.
    pub allowed_origins: Vec<String>,
}

fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(u64::try_from(i64::deserialize(deserializer)?).ok().filter(|number| *number > 0))
}

/// The problem of an origin in a list of allowed ones that no page can have: a clause that quotes it.
pub fn origin_problem(origin: &str) -> Option<String> {
    let good = origin.split_once("://").is_some_and(|(scheme, host)| {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        let is_host = |byte: u8| is_word(byte) || b"_:[]".contains(&byte);
        let default_port = match scheme {
            "http" => ":80",
            "https" => ":443",
            _ => ":",
        };
        !scheme.is_empty()
            && scheme.bytes().all(is_word)
            && !host.is_empty()
            && host.bytes().all(is_host)
            && !host.ends_with(default_port)
    });
    (!good).then(|| {
        format!("{origin:?} is no origin; write a scheme, a host and a port that is not the scheme's own, as in https://app.example")
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Own {
        #[serde(default)]
        rules: Vec<Rule>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Rule {
        limit: u8,
    }

    #[test]
    fn a_type_of_anybodys_is_read_with_the_path_of_what_does_not_fit() {
        assert_eq!(Own::read(Value::Null, "p"), Ok(Own { rules: vec![] }));
        assert_eq!(Own::read(json!({"rules": [{"limit": 7}]}), "p"), Ok(Own { rules: vec![Rule { limit: 7 }] }));
        for (value, field) in [
            (json!({"rules": [{"limit": 7}, {"limit": 700}]}), "p.rules[1].limit"),
            (json!({"rules": [{}]}), "p.rules[0].limit"),
            (json!([]), "p"),
        ] {
            let error = Own::read(value, "p").unwrap_err();
            assert_eq!(error.field, field, "{error}");
        }
    }

    #[test]
    fn an_allowed_origin_is_one_that_a_page_can_have() {
        for (origin, good) in [
            ("https://app.example", true),
            ("http://localhost:6274", true),
            ("http://[::1]:8080", true),
            ("http://[::1]:80", false),
            ("https://app.example:443", false),
            ("http://app.example:443", true),
            ("vscode-webview://0abc", true),
            ("*", false),
            ("null", false),
            ("", false),
            ("app.example", false),
            ("https://", false),
            ("https://app.example/", false),
            ("https://app.example, https://b", false),
            ("https://*.example", false),
            ("https://me@app.example", false),
        ] {
            assert_eq!(origin_problem(origin).is_none(), good, "{origin:?}");
        }
    }

    #[test]
    fn a_body_limit_of_zero_or_less_is_the_default() {
        let read = |value| BodyLimitParameters::read(value, "p").map(|parameters| parameters.max_bytes);
        for (value, bytes) in [
            (Value::Null, None),
            (json!({"max_bytes": 0}), None),
            (json!({"max_bytes": -1}), None),
            (json!({"MAX_BYTES": 5}), Some(5)),
            (json!({"max_bytes": i64::MAX}), Some(i64::MAX.unsigned_abs())),
        ] {
            assert_eq!(read(value), Ok(bytes));
        }
        assert!(read(json!({"max_bytes": "1"})).is_err());
    }
}
