//! Session records as ToolHive's runner writes them (v0.63.0).

use std::borrow::Cow;
use std::net::SocketAddr;

use jiff::Timestamp;
use mcp_store::{Principal, SessionRecord};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The member of the metadata that says whose session it is. A record without one is nobody's.
pub(crate) const BINDING: &str = "vmcp.identity.binding";

/// The value of a session's key.
#[derive(Debug, Serialize, Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    created_at: Timestamp,
    updated_at: Timestamp,
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

/// The members, in the order of their names.
#[derive(Debug, Serialize, Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    backend_sid: Option<Cow<'a, str>>,
    /// The scheme, address and port that the session was opened at, without a path.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    backend_url: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    init_body: Option<Cow<'a, str>>,
    /// A member of ours: where the server takes messages. ToolHive's runner asks the client, which was told.
    #[serde(rename = "portcullis.messages", borrow, default, skip_serializing_if = "Option::is_none")]
    messages: Option<Cow<'a, str>>,
    #[serde(rename = "vmcp.identity.binding", borrow)]
    binding: Cow<'a, str>,
}

/// The id as it is in keys: a UUID as it is, and any other text as the UUID that is derived from it (version 5, with the namespace of DNS).
pub(crate) fn key_id(id: &str) -> Cow<'_, str> {
    if Uuid::try_parse(id).is_ok() {
        return id.into();
    }
    Uuid::new_v5(&Uuid::NAMESPACE_DNS, id.as_bytes()).to_string().into()
}

/// The address of a record as a URL.
pub(crate) fn backend_url(record: &SessionRecord) -> Option<String> {
    record.backend_address.map(|address| format!("http://{address}"))
}

/// Writes a record.
pub(crate) fn encode(record: &SessionRecord, now: Timestamp) -> Result<String, serde_json::Error> {
    fn borrowed(text: Option<&str>) -> Option<Cow<'_, str>> {
        text.map(Cow::Borrowed)
    }
    serde_json::to_string(&Envelope {
        id: key_id(&record.id),
        kind: "mcp".into(),
        created_at: now,
        updated_at: now,
        metadata: Metadata {
            backend_sid: borrowed(record.backend_id.as_deref()),
            backend_url: backend_url(record).map(Into::into),
            init_body: borrowed(record.handshake.as_deref()),
            messages: borrowed(record.messages.as_deref()),
            binding: record.principal.as_str().into(),
        },
    })
}

/// Reads the record of the session that its client calls `id`, and which is known to belong to `principal`. An address that is a name is left out: the
/// proxy's own server has the session then. Members that are not named here are lost when the record is replaced.
pub(crate) fn decode(id: &str, principal: &Principal, value: &[u8]) -> Result<SessionRecord, serde_json::Error> {
    let Envelope { metadata, .. } = serde_json::from_slice(value)?;
    let owned = |text: Option<Cow<'_, str>>| text.map(|text| text.into_owned().into_boxed_str());
    let address =
        metadata.backend_url.as_deref().and_then(|url| url.strip_prefix("http://")?.parse::<SocketAddr>().ok());
    Ok(SessionRecord {
        id: id.into(),
        principal: principal.clone(),
        backend_id: owned(metadata.backend_sid),
        backend_address: address,
        handshake: owned(metadata.init_body),
        messages: owned(metadata.messages),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_written_to_the_byte_as_toolhive_does() {
        let mut record =
            SessionRecord::new("f50cc2bb-abb5-4eed-8862-2444029b90db", Principal::new("https://i", "alice"));
        record.backend_address = Some("10.0.0.7:8080".parse().unwrap());
        record.handshake = Some(r#"{"id": 1}"#.into());
        record.backend_id = Some("b".into());
        let now = "2026-11-27T06:12:13.530867574Z";
        let expected = format!(
            r#"{{"id":"f50cc2bb-abb5-4eed-8862-2444029b90db","type":"mcp","created_at":"{now}","updated_at":"{now}","metadata":{{"backend_sid":"b","backend_url":"http://10.0.0.7:8080","init_body":"{{\"id\": 1}}","vmcp.identity.binding":"https://i\u0000alice"}}}}"#
        );
        assert_eq!(encode(&record, now.parse().unwrap()).unwrap(), expected);
    }

    #[test]
    fn a_record_survives_being_written_and_an_id_that_is_no_uuid_is_kept() {
        let mut record = SessionRecord::new("SESSION-0001", Principal::new("https://i", "alice"));
        record.messages = Some("/messages?sessionId=1".into());
        record.backend_address = Some("[2001:db8::1]:80".parse().unwrap());
        let value = encode(&record, Timestamp::UNIX_EPOCH).unwrap();
        assert!(value.starts_with(r#"{"id":"faf67326-cd9d-5fcc-9d34-986dd8afe26a""#), "{value}");
        assert_eq!(decode("SESSION-0001", &record.principal, value.as_bytes()).unwrap(), record);
    }

    #[test]
    fn an_address_that_names_a_host_is_left_out() {
        let principal = Principal::unauthenticated();
        for (url, expected) in [
            ("http://127.0.0.1:26611", Some("127.0.0.1:26611")),
            ("https://127.0.0.1:26611", None),
            ("https://mcp.example", None),
            ("http://mcp-k1:80", None),
        ] {
            let value = format!(
                r#"{{"id":"a","type":"mcp","created_at":"2026-11-27T06:12:13Z","updated_at":"2026-11-27T06:12:13Z","data":{{}},"metadata":{{"backend_url":"{url}","vmcp.identity.binding":"unauthenticated","new":"member"}}}}"#
            );
            let record = decode("a", &principal, value.as_bytes()).unwrap();
            assert_eq!(record.backend_address, expected.map(|address| address.parse().unwrap()), "{url}");
        }
    }
}
