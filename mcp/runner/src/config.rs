//! Finding and reading the RunConfig, and the chain that it asks for (toolhive-runner §1.2, §1.6, §2.1).

use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use mcp_middleware::{Entry, Place};
use mcp_runconfig::{
    AuthParameters, HeaderForward, MiddlewareConfig, Parameters as _, ParseError, RemoteAuthConfig, RunConfig, chain,
};
use serde_json::{Value, json};

use crate::RunError;
use crate::document::run_config;

const PLACES: [&str; 3] = ["/etc/runconfig/runconfig.json", "/etc/toolhive/runconfig.json", "./runconfig.json"];
/// More than a ConfigMap can hold.
pub(crate) const MAX_DOCUMENT: u64 = 4 << 20;

/// Finds and parses the document. Where a checksum is `expected`, another document is refused: that of a pod's ConfigMap may be
/// newer than the pod, which is said to enforce what was in it when the pod was made.
pub(crate) fn load(named: Option<&Path>, expected: Option<&str>) -> Result<(PathBuf, RunConfig), RunError> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => PLACES
            .iter()
            .map(PathBuf::from)
            // One that is there and cannot be read is not passed over for another: that could lack its guards.
            .find(|path| !path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound))
            .ok_or_else(|| RunError::NoDocument(PLACES.join(", ")))?,
    };
    let unreadable = |source| RunError::Unreadable { path: path.clone(), source };
    let mut document = Vec::new();
    // A pipe or a device has no length to ask for beforehand.
    let file = std::fs::File::open(&path).map_err(unreadable)?;
    let length = file.take(MAX_DOCUMENT + 1).read_to_end(&mut document).map_err(unreadable)?;
    if length as u64 > MAX_DOCUMENT {
        return Err(unreadable(std::io::Error::new(ErrorKind::FileTooLarge, "it is larger than 4 MiB")));
    }
    if let Some(expected) = expected
        && expected != hex(digest(&SHA256, &document).as_ref())
    {
        return Err(RunError::OtherDocument { path });
    }
    let not_text = |_| ParseError::new("document", "is no text in UTF-8", "write one JSON object");
    match String::from_utf8(document).map_err(not_text).and_then(|text| run_config(&text)) {
        Ok(config) => Ok((path, config)),
        Err(source) => Err(RunError::Document { path, source: Box::new(source) }),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The middleware that the document asks for, the first outermost. What other members than the chain ask for stands outside of it, and so
/// does the check of `Origin`, which every proxy makes unasked.
pub(crate) fn middleware(config: &RunConfig) -> Vec<Entry> {
    let mut chain = Entry::list("middleware_configs", &config.middleware_configs);
    if chain.is_empty() {
        chain =
            chain::of(config).into_iter().filter(|entry| entry.kind != chain::HEADER_FORWARD).map(of_members).collect();
    }
    let mut entries = Vec::new();
    if !config.allowed_origins.is_empty() || chain.iter().all(|entry| entry.config.kind != chain::ORIGIN) {
        let parameters = json!({"allowed_origins": config.allowed_origins});
        entries.push(of_members(MiddlewareConfig::new(chain::ORIGIN, parameters)));
    }
    if config.max_request_body_size > 0 {
        chain.retain(|entry| entry.config.kind != chain::BODY_LIMIT);
        let parameters = json!({"max_bytes": config.max_request_body_size});
        entries.push(of_members(MiddlewareConfig::new(chain::BODY_LIMIT, parameters)));
    }
    // Inside of all that checks: a recovery that stands further out has entries inside of it that these would get ahead of.
    let end = chain.len() - usize::from(chain.last().is_some_and(|entry| entry.config.kind == chain::RECOVERY));
    let additional = Entry::list("additional_middleware_configs", &config.additional_middleware_configs);
    let own = config.header_forward.as_ref().map(headers).into_iter().chain(additional);
    // An exchanged token or a signature is the credential already.
    let has_other = chain.iter().any(|entry| [chain::TOKEN_EXCHANGE, chain::AWS_STS].contains(&&*entry.config.kind));
    let token = config.remote_auth_config.as_ref().filter(|_| !has_other).map(own_token);
    chain.splice(end..end, own.chain(token));
    entries.append(&mut chain);
    // ToolHive's documents have these before, so that its proxies charge the tool that the client named, and get credentials for calls that they refuse.
    move_behind(&mut entries, chain::RATE_LIMIT, &chain::BEFORE_RATE_LIMIT);
    move_behind(&mut entries, chain::TOKEN_EXCHANGE, &chain::BEFORE_CREDENTIALS);
    move_behind(&mut entries, chain::AWS_STS, &chain::BEFORE_CREDENTIALS);
    entries
}

/// Moves the middleware `kind` behind the last of the types `before`, all of which may change or refuse a call.
fn move_behind(entries: &mut [Entry], kind: &str, before: &[&str]) {
    let last = entries.iter().rposition(|entry| before.contains(&&*entry.config.kind));
    let own = entries.iter().position(|entry| entry.config.kind == kind);
    if let Some((own, last)) = own.zip(last).filter(|(own, last)| own < last) {
        entries[own..=last].rotate_left(1);
    }
}

/// Whether an entry of the chain asks for a login. One whose parameters cannot be read stops the start elsewhere.
pub(crate) fn demands_login(entry: &MiddlewareConfig) -> bool {
    let parameters = || AuthParameters::read(entry.parameters.clone(), "");
    entry.kind == chain::AUTH && parameters().is_ok_and(|parameters| parameters.oidc_config.is_some())
}

fn of_members(config: MiddlewareConfig) -> Entry {
    Entry { place: Place::Members(chain::members(&config.kind)), config }
}

/// The middleware that adds the headers of the document. An entry of the chain may have some of them already, and never
/// those whose values are secret.
fn headers(HeaderForward { add_plaintext_headers, add_headers_from_secret, .. }: &HeaderForward) -> Entry {
    let parameters = json!({"add_headers": add_plaintext_headers, "add_headers_from_secret": add_headers_from_secret});
    of_members(MiddlewareConfig::new(chain::HEADER_FORWARD, parameters))
}

/// The middleware that shows a remote server the proxy's own token.
fn own_token(config: &RemoteAuthConfig) -> Entry {
    // Strings, lists and maps with string keys always serialize; no object would be refused.
    let parameters = serde_json::to_value(config).unwrap_or(Value::Bool(false));
    of_members(MiddlewareConfig::new(chain::TOKEN_INJECTION, parameters))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use super::*;
    use futures::FutureExt as _;
    use mcp_middleware::{ProxySettings, SecretSource};
    use mcp_redis::Clients;

    fn parse(members: &str) -> RunConfig {
        let document = format!(r#"{{"name":"demo","transport":"streamable-http"{members}}}"#);
        RunConfig::parse(document.as_bytes()).unwrap()
    }

    fn entries(members: &str) -> Vec<MiddlewareConfig> {
        middleware(&parse(members)).into_iter().map(|entry| entry.config).collect()
    }

    fn kinds(members: &str) -> Vec<String> {
        entries(members).into_iter().map(|entry| entry.kind).filter(|kind| kind != chain::ORIGIN).collect()
    }

    #[test]
    fn the_chain_is_the_documents_and_only_where_it_has_none_it_follows_from_the_other_members() {
        let webhook = r#"[{"name":"w","url":"https://w","failure_policy":"fail"}]"#;
        for (members, expected) in [
            (String::new(), vec!["bodylimit", "auth", "mcp-parser", "recovery"]),
            (
                format!(r#","validating_webhooks":{webhook},"mutating_webhooks":{webhook}"#),
                vec!["bodylimit", "auth", "mcp-parser", "mutating-webhook", "validating-webhook", "recovery"],
            ),
            (
                r#","tools_filter":["a"]"#.to_owned(),
                vec!["bodylimit", "auth", "tool-filter", "tool-call-filter", "mcp-parser", "recovery"],
            ),
            (
                r#","tools_override":{"a":{"name":"b"}}"#.to_owned(),
                vec!["bodylimit", "auth", "tool-filter", "tool-call-filter", "mcp-parser", "recovery"],
            ),
            (
                format!(r#","rate_limit_config":{{"shared":{{"maxTokens":1}}}},"mutating_webhooks":{webhook}"#),
                vec!["bodylimit", "auth", "mcp-parser", "mutating-webhook", "ratelimit", "recovery"],
            ),
            (
                r#","middleware_configs":[{"type":"auth"},{"type":"ratelimit"},{"type":"mutating-webhook"},{"type":"usagemetrics"},
                    {"type":"authorization"},{"type":"recovery"}]"#.into(),
                vec!["auth", "mutating-webhook", "usagemetrics", "authorization", "ratelimit", "recovery"],
            ),
            (
                r#","token_exchange_config":{},"tools_filter":["a"]"#.to_owned(),
                vec!["bodylimit", "auth", "tool-filter", "tool-call-filter", "mcp-parser", "tokenexchange", "recovery"],
            ),
            (
                r#","middleware_configs":[{"type":"auth"},{"type":"tokenexchange"},{"type":"mcp-parser"},{"type":"ratelimit"},
                    {"type":"authorization"},{"type":"header-forward"},{"type":"recovery"}]"#.into(),
                vec!["auth", "mcp-parser", "authorization", "ratelimit", "tokenexchange", "header-forward", "recovery"],
            ),
            (
                r#","remote_auth_config":{"bearer_token":"t"},"header_forward":{"add_plaintext_headers":{"X-A":"1"}}"#.into(),
                vec!["bodylimit", "auth", "mcp-parser", "header-forward", "oauth-token-injection", "recovery"],
            ),
            (
                r#","remote_auth_config":{"bearer_token":"t"},"token_exchange_config":{}"#.into(),
                vec!["bodylimit", "auth", "mcp-parser", "tokenexchange", "recovery"],
            ),
            (
                r#","middleware_configs":[{"type":"auth"},{"type":"ratelimit"},{"type":"recovery"}]"#.into(),
                vec!["auth", "ratelimit", "recovery"],
            ),
            (
                r#","middleware_configs":[{"type":"auth"},{"type":"recovery"}],"additional_middleware_configs":[{"type":"x"}]"#.into(),
                vec!["auth", "x", "recovery"],
            ),
            (
                r#","header_forward":{"add_plaintext_headers":{"X-A":"1"}},"additional_middleware_configs":[{"type":"x"}]"#.into(),
                vec!["bodylimit", "auth", "mcp-parser", "header-forward", "x", "recovery"],
            ),
            (
                r#","header_forward":{"add_headers_from_secret":{"X-A":"ID"}},"middleware_configs":[{"type":"header-forward"},{"type":"recovery"}]"#.into(),
                vec!["header-forward", "header-forward", "recovery"],
            ),
            (
                r#","header_forward":{"add_plaintext_headers":{"X-A":"1"}},"additional_middleware_configs":[{"type":"x"}],
                    "middleware_configs":[{"type":"recovery"},{"type":"auth"},{"type":"mcp-parser"}]"#.into(),
                vec!["recovery", "auth", "mcp-parser", "header-forward", "x"],
            ),
        ] {
            assert_eq!(kinds(&members), expected, "{members}");
        }
    }

    #[test]
    fn every_proxy_checks_origins() {
        let origins = |members: &str| -> Vec<(usize, Value)> {
            let entries = entries(members).into_iter().enumerate();
            entries.filter(|(_, entry)| entry.kind == "origin").map(|(at, entry)| (at, entry.parameters)).collect()
        };
        let own = r#","middleware_configs":[{"type":"auth"},{"type":"origin","parameters":{"allowed_origins":["http://b"]}}]"#;
        let [a, b, none] =
            [json!(["http://a"]), json!(["http://b"]), json!([])].map(|list| json!({"allowed_origins": list}));
        for (members, expected) in [
            ("", vec![(0, none)]),
            (r#","allowed_origins":["http://a"],"max_request_body_size":7"#, vec![(0, a.clone())]),
            (own, vec![(1, b.clone())]),
            (&format!(r#"{own},"allowed_origins":["http://a"]"#), vec![(0, a), (2, b)]),
        ] {
            assert_eq!(origins(members), expected, "{members}");
        }
    }

    #[test]
    fn the_documents_own_login_guards_whether_there_is_a_chain_or_not() {
        for members in ["", r#","middleware_configs":[{"type":"auth","parameters":{}}]"#] {
            let entries = entries(&format!(r#","OIDC_config":{{"issuer":"https://i"}}{members}"#));
            let auth = entries.iter().find(|entry| entry.kind == chain::AUTH).unwrap();
            assert_eq!(auth.parameters["oidc_config"]["Issuer"], "https://i", "{members}");
        }
    }

    #[test]
    fn the_documents_own_body_limit_replaces_those_of_the_chain() {
        let limits = |members: &str| {
            let entries = entries(members);
            let limits = entries
                .iter()
                .filter(|entry| entry.kind != chain::ORIGIN)
                .map(|entry| (entry.kind.clone(), entry.parameters["max_bytes"].clone()));
            limits.collect::<Vec<_>>()
        };
        let configs = r#","middleware_configs":[{"type":"auth"},{"type":"bodylimit","parameters":{"max_bytes":5}}]"#;
        let [auth, limit] = [("auth".to_owned(), Value::Null), ("bodylimit".to_owned(), json!(5))];
        for absent in ["", r#","max_request_body_size":0"#, r#","max_request_body_size":null"#] {
            assert_eq!(limits(&format!("{configs}{absent}")), [auth.clone(), limit.clone()], "{absent}");
        }
        let wider = ("bodylimit".to_owned(), json!(16 << 20));
        let members = format!(r#"{configs},"max_request_body_size":{}"#, 16 << 20);
        assert_eq!(limits(&members), [wider, auth]);
        assert_eq!(limits(r#","max_request_body_size":7"#)[0], ("bodylimit".to_owned(), json!(7)));
    }

    #[test]
    fn an_error_does_not_name_a_member_that_the_document_does_not_have() {
        let hook = |url: &str| json!([{"name": "w", "url": url, "failure_policy": "fail"}]).to_string();
        let (good, bad) = (hook("https://w"), hook("http://w"));
        let redis = r#""scaling_config":{"session_redis":{"address":"redis:6379"}}"#;
        let same = r#","tools_override":{"a":{"name":"x"},"b":{"name":"x"}}"#;
        let limit = r#"{"type":"bodylimit","parameters":{"max_bytes":5}}"#;
        let token = r#","remote_auth_config":{"bearer_token":"t"}"#;
        let exchange = |more: &str| format!(r#","token_exchange_config":{{"token_url":"https://a"{more}}}"#);
        let custom = r#","header_strategy":"custom","external_token_header_name":"X-Key""#;
        for (members, field) in [
            (format!(r#","validating_webhooks":{bad}"#), "validating_webhooks[0].url"),
            (format!(r#","validating_webhooks":{good},"mutating_webhooks":{bad}"#), "mutating_webhooks[0].url"),
            (same.to_owned(), "tools_override.b.name"),
            (
                r#","header_forward":{"add_plaintext_headers":{"Host":"x"}}"#.to_owned(),
                "header_forward.add_plaintext_headers.Host",
            ),
            (
                r#","header_forward":{"add_headers_from_secret":{"X-Key":"ID"}}"#.to_owned(),
                "header_forward.add_headers_from_secret.X-Key",
            ),
            (
                r#","middleware_configs":[{"type":"header-forward"},{"type":"auth"}]"#.to_owned(),
                "middleware_configs[0].type",
            ),
            (
                format!(r#"{token},"header_forward":{{"add_plaintext_headers":{{"AUTHORIZATION":"x"}}}}"#),
                "header_forward.add_plaintext_headers.AUTHORIZATION",
            ),
            (
                format!(r#"{token},"header_forward":{{"add_headers_from_secret":{{"Authorization":"ID"}}}}"#),
                "header_forward.add_headers_from_secret.Authorization",
            ),
            (
                format!(r#"{},"header_forward":{{"add_plaintext_headers":{{"authorization":"x"}}}}"#, exchange("")),
                "header_forward.add_plaintext_headers.authorization",
            ),
            (
                format!(r#"{},"header_forward":{{"add_plaintext_headers":{{"x_key":"x"}}}}"#, exchange(custom)),
                "header_forward.add_plaintext_headers.x_key",
            ),
            (
                format!(
                    r#","middleware_configs":[{{"type":"auth"}},
                        {{"type":"header-forward","parameters":{{"add_headers":{{"Authorization":"x"}}}}}},
                        {{"type":"tokenexchange","parameters":{{{}}}}}]"#,
                    exchange(custom).trim_start_matches(',')
                ),
                "middleware_configs[1].parameters.add_headers.Authorization",
            ),
            (
                r#","header_forward":{"add_plaintext_headers":{"X-A":"1"}},"middleware_configs":[{"type":"mcp-parser"}],
                    "additional_middleware_configs":[{"type":"auth"}]"#.to_owned(),
                "header_forward",
            ),
            (r#","middleware_configs":[{"type":"auth"},{"type":"x"}]"#.to_owned(), "middleware_configs[1].type"),
            (
                r#","token_exchange_config":{"header_strategy":"query"}"#.to_owned(),
                "token_exchange_config.header_strategy",
            ),
            (r#","remote_auth_config":{"bearer_token":"t,target=x"}"#.to_owned(), "remote_auth_config.bearer_token"),
            (r#","remote_auth_config":{"bearer_token_file":"t"}"#.to_owned(), "remote_auth_config.bearer_token_file"),
            (r#","token_exchange_config":{"audience":"a"}"#.to_owned(), "token_exchange_config.token_url"),
            (
                r#","middleware_configs":[{"type":"tokenexchange","parameters":{"token_exchange_config":{"token_url":"https://a"}}}]"#
                    .to_owned(),
                "middleware_configs[0].type",
            ),
            (r#","rate_limit_config":{"shared":{"maxTokens":1}}"#.to_owned(), "scaling_config.session_redis.address"),
            (
                format!(r#","rate_limit_config":{{"shared":{{"maxTokens":1}}}},{redis}"#),
                "rate_limit_config.shared.refillPeriod",
            ),
            (format!(r#","rate_limit_config":{{}},{redis}"#), "rate_limit_config"),
            (
                r#","middleware_configs":[{"type":"auth"},{"type":"ratelimit"},{"type":"authorization"}]"#.to_owned(),
                "middleware_configs[2].parameters.config_data",
            ),
            (
                format!(
                    r#","max_request_body_size":7,"middleware_configs":[{limit},{{"type":"auth"}},{{"type":"x"}}]"#
                ),
                "middleware_configs[2].type",
            ),
            (
                format!(
                    r#","allowed_origins":["http://a"],"middleware_configs":[{limit},{{"type":"recovery"}}],
                        "additional_middleware_configs":[{{"type":"auth"}},{{"type":"bodylimit","parameters":{{"max_bytes":"1"}}}}]"#
                ),
                "additional_middleware_configs[1].parameters.max_bytes",
            ),
            (
                format!(
                    r#","additional_middleware_configs":[{{"type":"auth"}}],
                        "middleware_configs":[{{"type":"mcp-parser"}},{{"type":"recovery"}},
                                              {{"type":"validating-webhook","parameters":{{"webhooks":{bad}}}}}]"#
                ),
                "middleware_configs[2].parameters.webhooks[0].url",
            ),
        ] {
            let entries = middleware(&parse(&members));
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let clients = Clients::new(SecretSource::None, None, Arc::clone(&provider));
            let settings = ProxySettings::new(SocketAddr::from(([10, 0, 0, 1], 8080)), provider);
            let error = crate::registry::registry(&clients, false, &mcp_credentials::Provided::default()).build_entries(entries, settings).now_or_never().unwrap().unwrap_err();
            assert_eq!(error.field, field, "{members}: {error}");
        }
    }
}
