//! Headers for a remote server: which may be added, and where their values come from.

use mcp_gate::registry;
use mcp_middleware::{BuildError, ProxySettings, Secrets};
use serde_json::{Value, json};

use crate::support::{Files, configs};

const VALUE: &str = "hush-7f3a";

fn build(parameters: &Value, provider: bool) -> Result<(), BuildError> {
    let secrets = [("KEY", VALUE), ("LINES", "hush-7f3a\nX-Admin: 1"), ("ENDED", "hush-7f3a\r\n"), ("EMPTY", "")];
    let secrets: Secrets = secrets.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
    assert!(!format!("{secrets:?}").contains(VALUE), "{secrets:?}");
    let settings = ProxySettings { secrets: provider.then_some(secrets), ..Files::new().settings() };
    registry().build(&configs(json!([{"type": "header-forward", "parameters": parameters}])), &settings).map(|_| ())
}

#[test]
fn headers_that_are_not_the_documents_to_set_stop_the_start() {
    for name in [
        "Host",
        "connection",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Trailers",
        "Transfer-Encoding",
        "Upgrade",
        "HTTP2-Settings",
        "Close",
        "Content-Length",
        "Forwarded",
        "X-Real-Ip",
        "True-Client-IP",
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-HTTP-Method-Override",
        "Mcp-Session-Id",
        "Last-Event-ID",
        "Proxy-Authorization",
        "proxy-anything",
        "X-Forwarded-For",
        "x-forwarded-anything",
        "not a name",
        "",
    ] {
        for list in ["add_headers", "add_headers_from_secret"] {
            let error = build(&json!({list: {name: "KEY"}}), true).unwrap_err();
            assert_eq!(error.field, format!("middleware_configs[0].parameters.{list}.{name}"), "{error}");
        }
    }
    let others = ["Authorization", "X-Api-Key", "X-Forwarder", "Hostname", "Mcp-Param-Region"];
    for name in others {
        assert_eq!(build(&json!({"add_headers": {name: "v"}, "Add_Headers_From_Secret": {name: "KEY"}}), true), Ok(()));
    }
}

#[test]
fn a_secret_is_there_and_fits_a_header_or_the_start_stops_without_its_value() {
    let secret = |identifier: &str| json!({"add_headers_from_secret": {"X-Key": identifier}});
    for (identifier, provider, problem) in [
        ("KEY", false, "no provider of secrets"),
        ("MISSING", true, "\"MISSING\", which is not there"),
        ("EMPTY", true, "\"EMPTY\", which is not there"),
        ("LINES", true, "a value that no header can have"),
    ] {
        let error = build(&secret(identifier), provider).unwrap_err().to_string();
        assert!(error.contains(problem) && !error.contains(VALUE), "{error}");
    }
    for identifier in ["KEY", "ENDED"] {
        assert_eq!(build(&secret(identifier), true), Ok(()), "{identifier}");
    }
}
