//! The header of a credential: no other one meets it, and what it holds fits it.

use mcp_operator::subject::Subject as _;
use serde_json::json;

use super::{
    external_auth_config::{outcome, proxy, spec, told},
    world::{World, condition, external_auth_config},
};
use crate::support::exchange;

#[test]
fn a_credential_is_refused_where_an_added_header_meets_it() {
    let custom = exchange(json!({"externalTokenHeaderName": "X-Token"}));
    let plain = |name: &str| json!({"addPlaintextHeaders": {name: "v"}});
    let secret = |name: &str| json!({"addHeadersFromSecret": [{"headerName": name, "valueSecretRef": {"name": "s", "key": "k"}}]});
    for (credential, headers, meets) in [
        (spec("bearerToken"), plain("AUTHORIZATION"), Some("AUTHORIZATION")),
        (spec("bearerToken"), secret("Authorization"), Some("Authorization")),
        (spec("bearerToken"), plain("X-Key"), None),
        (spec("tokenExchange"), plain("Authorization"), Some("Authorization")),
        (custom.clone(), secret("x-token"), Some("x-token")),
        (custom, plain("Authorization"), None),
        (spec("awsSts"), plain("Authorization"), Some("Authorization")),
        (spec("awsSts"), secret("X-Amz-Date"), Some("X-Amz-Date")),
        (spec("xaa"), plain("Authorization"), None),
    ] {
        let mut world = proxy("bearerToken");
        world.has(external_auth_config("credential", credential.clone()));
        world.workload.spec.header_forward = serde_json::from_value(headers.clone()).unwrap();
        let (condition, said, _) = outcome(&world);
        let Some(header) = meets else {
            assert!(condition.starts_with("True/"), "{credential} {headers}: {said}");
            continue;
        };
        let problem = format!("sends its credential in {header}, which spec.headerForward adds; remove that header");
        assert_eq!((&*condition, said), ("False/InvalidConfig", problem.clone()), "{credential} {headers}");
        assert!(world.plan().children.is_empty(), "it gets no proxy");
        assert!(told(&world)[0].ends_with(&problem), "its author is told of it");
    }
}

#[test]
fn a_value_that_no_header_can_hold_is_named() {
    let (word, line) = ("is no token; write one word", "is no header's value; write one line");
    for (value, of_token, of_header) in [
        ("hunter2\n", None, None),
        ("hunter2\r\n\r\n", None, None),
        ("hunter\n2", Some(word), Some(line)),
        ("hunter 2", Some(word), None),
        ("hünter2", Some(word), Some(line)),
        ("hunter\u{7f}", Some(word), Some(line)),
        // Blank for the proxy, too.
        ("\u{a0}\n", Some("is empty"), Some("is empty")),
    ] {
        let expected = |problem: Option<&str>| problem.map(|problem| format!("Secret s/k {problem}"));
        let mut token = proxy("bearerToken");
        token.secret("s", "k", value);
        let found = condition(&token.plan(), "ExternalAuthConfigValidated", "False");
        assert_eq!(found.is_some(), of_token.is_some(), "{value:?}");
        let problem = expected(of_token).unwrap_or_default();
        assert!(found.is_none_or(|(reason, said)| reason == "ExternalAuthSecretNotValid" && said.contains(&problem)));

        let mut header = proxy("unauthenticated");
        header.secret("s", "k", value);
        let from =
            json!({"addHeadersFromSecret": [{"headerName": "X-Key", "valueSecretRef": {"name": "s", "key": "k"}}]});
        header.workload.spec.header_forward = serde_json::from_value(from).unwrap();
        let found = condition(&header.plan(), "ConfigurationValid", "False");
        assert_eq!(found.is_some(), of_header.is_some(), "{value:?}");
        let problem = expected(of_header).unwrap_or_default();
        assert!(found.is_none_or(|(reason, said)| reason == "HeaderSecretNotUsable" && said.contains(&problem)));
    }
}

#[test]
fn header_secrets_in_clear_text_are_warned_of() {
    let settings = World::of(json!({"image": "x:1"})).settings;
    let mut world = proxy("bearerToken");
    let from = json!({"addHeadersFromSecret": [{"headerName": "X-Key", "valueSecretRef": {"name": "s", "key": "k"}}]});
    world.workload.spec.header_forward = serde_json::from_value(from).unwrap();
    let mut warned = |url: &str| {
        url.clone_into(&mut world.workload.spec.remote_url);
        let mut warnings = world.workload.warnings(&settings);
        warnings.retain(|warning| warning.contains("sent in clear text"));
        warnings
    };
    assert_eq!(warned("https://mcp.example.com/mcp"), [""; 0]);
    let expected = ["spec.remoteUrl: the headers with values from Secrets are sent in clear text; use https"];
    for url in ["http://mcp.example.com/mcp", "HTTP://mcp.example.com/mcp"] {
        assert_eq!(warned(url), expected, "{url}");
    }
}
