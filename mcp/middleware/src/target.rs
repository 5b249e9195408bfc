//! The name of the thing that a message acts on, as those tell it who observe the request.

use std::borrow::Cow;

use mcp_wire::{Message, OwnedMessage};
use serde::Deserialize;

/// The parameter `clientInfo` of a handshake.
#[derive(Deserialize)]
struct ClientInfo<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
}

/// The thing that a message acts on, without secrets; of a handshake, the client's name. Clients choose it, and its length.
pub fn target_name(message: &OwnedMessage) -> Option<Cow<'_, str>> {
    let message = message.message();
    match message.method()? {
        "initialize" => client_name(message),
        "notifications/initialized" => Some("initialized".into()),
        "ping" => Some("ping".into()),
        method if method.starts_with("resources/") => Some(without_secrets(message.target().ok()??)),
        _ => message.target().ok()?,
    }
}

fn client_name<'a>(message: &Message<'a>) -> Option<Cow<'a, str>> {
    serde_json::from_str::<ClientInfo<'a>>(message.param("clientInfo").ok()??.get()).ok()?.name
}

/// A URI without its user and what follows its path, which may be secrets.
fn without_secrets(uri: Cow<'_, str>) -> Cow<'_, str> {
    let end = uri.find(['?', '#']).unwrap_or(uri.len());
    let path = uri.get(..end).unwrap_or_default();
    let user = path.split_once("://").and_then(|(scheme, rest)| {
        let authority = rest.split('/').next().unwrap_or_default();
        let (_, host) = authority.rsplit_once('@')?;
        let behind = rest.get(authority.len()..).unwrap_or_default();
        Some(format!("{scheme}://{host}{behind}"))
    });
    match user {
        Some(uri) => uri.into(),
        None if end < uri.len() => path.to_owned().into(),
        None => uri,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn no_secret_of_a_uri_is_in_a_name() {
        for (uri, name) in [
            ("file:///a/b", "file:///a/b"),
            ("https://u:p4ss@h/x?token=t#f", "https://h/x"),
            ("https://u:p@ss@h:8/x", "https://h:8/x"),
            ("https://h/@x", "https://h/@x"),
            ("note:1?key=k", "note:1"),
            ("https://h", "https://h"),
        ] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{{"uri":"{uri}"}}}}"#);
            let message = OwnedMessage::read(Bytes::from(body)).unwrap();
            assert_eq!(target_name(&message).as_deref(), Some(name), "{uri}");
        }
    }

    #[test]
    fn a_target_is_what_the_method_acts_on() {
        for (method, params, name) in [
            ("initialize", r#"{"clientInfo":{"name":"c\"1","version":"1"}}"#, Some("c\"1")),
            ("initialize", r#"{"clientInfo":{}}"#, None),
            ("initialize", "{}", None),
            ("notifications/initialized", "{}", Some("initialized")),
            ("ping", "{}", Some("ping")),
            ("tools/call", r#"{"name":"echo"}"#, Some("echo")),
            ("tools/call", r#"{"name":1}"#, None),
            ("tools/list", r#"{"name":"echo"}"#, None),
        ] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
            let message = OwnedMessage::read(Bytes::from(body)).unwrap();
            assert_eq!(target_name(&message).as_deref(), name, "{method} {params}");
        }
    }
}
