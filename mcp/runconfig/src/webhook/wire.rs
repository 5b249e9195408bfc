//! What is posted to a request webhook (toolhive-runner §3.5) and what it answers (§3.7).

use std::{collections::BTreeMap, fmt, net::SocketAddr};

use jiff::Timestamp;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};

use super::PAYLOAD_VERSION;

/// What is posted to a webhook.
#[derive(Clone, Copy)]
pub struct Payload<'a> {
    /// UUIDv4 of this review.
    pub uid: &'a str,
    /// When it was made.
    pub timestamp: Timestamp,
    /// A [`Principal`] as JSON: who called. `None` when the chain authenticated nobody.
    pub principal: Option<&'a str>,
    /// The JSON-RPC message, which is JSON and goes on byte for byte.
    pub mcp_request: &'a str,
    /// The TCP peer.
    pub source: SocketAddr,
    /// Where it was received.
    pub context: &'a Context,
}

/// Who called. Members that are empty are left out; tokens are never in it.
#[derive(Clone, Copy, PartialEq, Serialize)]
pub struct Principal<'a> {
    /// Subject.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub sub: &'a str,
    /// The platform's id of the user.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub platform_user_id: &'a str,
    /// Display name.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: &'a str,
    /// Mail address.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub email: &'a str,
    /// Claims of the token.
    #[serde(skip_serializing_if = "no_claims")]
    pub claims: &'a Map<String, Value>,
}

/// Where requests are received: a name and a transport, as JSON.
#[derive(Clone, Debug)]
pub struct Context {
    server_name: String,
    transport: String,
}

/// What a webhook answered. Reading is strict on the types of known keys, blind to their case, and ignores unknown
/// ones; `null` is the same as absent and of two equal keys the later counts.
#[derive(Debug, Default)]
pub struct Response {
    /// Whether the request may pass. Absent means it may not.
    pub allowed: bool,
    /// A status for logs.
    pub code: i64,
    /// A sentence for logs; never shown to the MCP client.
    pub message: String,
    /// A word for logs.
    pub reason: String,
    /// Further detail for logs.
    pub details: BTreeMap<String, String>,
    /// How `patch` is written; only [`PATCH_TYPE`](super::PATCH_TYPE) is known.
    pub patch_type: String,
    /// The change a mutating webhook asks for.
    pub patch: Option<Box<RawValue>>,
}

impl Payload<'_> {
    /// The JSON that is posted, in the contract's order. Not by serde, which would read the message once more: that took a sixth of a call.
    pub fn encode(&self) -> Vec<u8> {
        let Self { uid, timestamp, principal, mcp_request, source, context } = self;
        let (timestamp, source) = (timestamp.to_string(), source.to_string());
        [
            r#"{"version":""#,
            PAYLOAD_VERSION,
            r#"","uid":""#,
            uid,
            r#"","timestamp":""#,
            &timestamp,
            r#"","principal":"#,
            principal.unwrap_or("null"),
            r#","mcp_request":"#,
            mcp_request,
            r#","context":{"server_name":"#,
            &context.server_name,
            r#","source_ip":""#,
            &source,
            r#"","transport":"#,
            &context.transport,
            "}}",
        ]
        .concat()
        .into_bytes()
    }
}

impl Context {
    /// The server of this name, which is reached over this transport.
    pub fn new(server_name: &str, transport: &str) -> Self {
        let json = |text: &str| Value::from(text).to_string();
        Self { server_name: json(server_name), transport: json(transport) }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference to the field")]
fn no_claims(claims: &&Map<String, Value>) -> bool {
    claims.is_empty()
}

/// What a person is and asks for is not shown.
impl fmt::Debug for Payload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload").field("uid", &self.uid).finish_non_exhaustive()
    }
}

/// Claims describe a person: only their names are shown.
impl fmt::Debug for Principal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claims: Vec<_> = self.claims.keys().collect();
        f.debug_struct("Principal").field("sub", &self.sub).field("claims", &claims).finish_non_exhaustive()
    }
}

impl<'de> Deserialize<'de> for Response {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ResponseVisitor)
    }
}

struct ResponseVisitor;

impl<'de> Visitor<'de> for ResponseVisitor {
    type Value = Response;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a webhook response object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Response, A::Error> {
        /// Sets what is there and leaves the rest, as null does in Go.
        fn read<'de, T: Deserialize<'de>, A: MapAccess<'de>>(map: &mut A, into: &mut T) -> Result<(), A::Error> {
            if let Some(value) = map.next_value::<Option<T>>()? {
                *into = value;
            }
            Ok(())
        }
        let mut response = Response::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.to_ascii_lowercase().as_str() {
                "version" | "uid" => read(&mut map, &mut String::new())?,
                "allowed" => read(&mut map, &mut response.allowed)?,
                "code" => read(&mut map, &mut response.code)?,
                "message" => read(&mut map, &mut response.message)?,
                "reason" => read(&mut map, &mut response.reason)?,
                "details" => {
                    let mut details = BTreeMap::<String, Option<String>>::new();
                    read(&mut map, &mut details)?;
                    response.details.extend(details.into_iter().map(|(key, text)| (key, text.unwrap_or_default())));
                }
                "patch_type" => read(&mut map, &mut response.patch_type)?,
                "patch" => response.patch = map.next_value()?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(response)
    }
}
