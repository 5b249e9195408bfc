//! What is posted to a request webhook (toolhive-runner §3.5) and what it answers (§3.7).

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};

use super::PAYLOAD_VERSION;

/// What is posted to a webhook. Keys are written in this order.
#[derive(Debug, Serialize)]
pub struct Payload<'a> {
    /// [`PAYLOAD_VERSION`].
    version: &'static str,
    /// UUIDv4 of this review.
    uid: &'a str,
    /// When it was made.
    timestamp: jiff::Timestamp,
    /// Who called; null when the chain authenticated nobody.
    principal: Option<Principal<'a>>,
    /// The JSON-RPC message, byte for byte.
    mcp_request: &'a RawValue,
    /// Where it was received.
    context: Context<'a>,
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

/// Where a request was received.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Context<'a> {
    /// Name of the MCP server.
    pub server_name: &'a str,
    /// `ip:port` of the TCP peer.
    pub source_ip: &'a str,
    /// Transport of the MCP server.
    pub transport: &'a str,
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

impl<'a> Payload<'a> {
    /// A payload of the current version.
    pub fn new(
        uid: &'a str,
        timestamp: jiff::Timestamp,
        principal: Option<Principal<'a>>,
        mcp_request: &'a RawValue,
        context: Context<'a>,
    ) -> Self {
        Self { version: PAYLOAD_VERSION, uid, timestamp, principal, mcp_request, context }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference to the field")]
fn no_claims(claims: &&Map<String, Value>) -> bool {
    claims.is_empty()
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
