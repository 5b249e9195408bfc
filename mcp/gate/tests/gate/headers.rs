//! Headers for a remote server: which may be added, and where their values come from.

use futures::FutureExt as _;
use http::HeaderValue;
use mcp_gate::registry;
use mcp_middleware::{BuildError, ProxySettings, Secrets};
use serde_json::{Value, json};

use crate::support::{CALL, Files, Proxy, configs, post};

const VALUE: &str = "hush-7f3a";

fn build(parameters: &Value, provider: bool) -> Result<(), BuildError> {
    let secrets = [("KEY", VALUE), ("LINES", "hush-7f3a\nX-Admin: 1"), ("ENDED", "hush-7f3a\r\n"), ("EMPTY", "")];
    let secrets: Secrets = secrets.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
    assert!(!format!("{secrets:?}").contains(VALUE), "{secrets:?}");
    let settings = ProxySettings { secrets: provider.then_some(secrets), ..Files::new().settings() };
    let entries = configs(json!([{"type": "header-forward", "parameters": parameters}]));
    registry().build(&entries, settings).now_or_never().unwrap().map(|_| ())
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
        "X-HTTP-Method",
        "X-Method-Override",
        "X-Client-IP",
        "Proxy",
        "X-Original-URI",
        "X-Forwarded",
        "X-Auth-Request-User",
        "Mcp_Session_Id",
        "X_Forwarded_For",
        "x_http_method_override",
        "Last.Event.Id",
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
    let others = ["Authorization", "X-Api-Key", "X_Api_Key2", "X-Forwarder", "Hostname", "Mcp-Param-Region"];
    for name in others {
        assert_eq!(build(&json!({"add_headers": {name: "v"}, "Add_Headers_From_Secret": {name: "KEY"}}), true), Ok(()));
    }
}

#[tokio::test]
async fn an_authors_header_is_sent_as_written_and_no_clients_beside_it() {
    let headers = json!({"X_Api_Key": "own", "X-Tenant": "t", "x-plain": "p"});
    let proxy = Proxy::new(&Files::new(), json!([{"type": "header-forward", "parameters": {"add_headers": headers}}]));
    let mut request = post("application/json", CALL);
    for name in ["x-api-key", "x_api_key", "x.api_key", "x-tenant", "x_tenant", "x-plain", "x-other", "x-api-key2"] {
        request.headers_mut().insert(name, HeaderValue::from_static("client"));
    }
    assert_eq!(proxy.send(request).await.status, 200);
    let sent = &proxy.forwarded()[0].headers;
    let mut sent: Vec<_> = sent.iter().filter(|(name, _)| name.as_str().starts_with('x')).collect();
    sent.sort_unstable_by_key(|(name, _)| name.as_str());
    let expected =
        [("x-api-key2", "client"), ("x-other", "client"), ("x-plain", "p"), ("x-tenant", "t"), ("x_api_key", "own")];
    assert_eq!(sent.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect::<Vec<_>>(), expected);
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
