//! Finding and reading the RunConfig, and the chain that it asks for (toolhive-runner §1.2, §1.6, §2.1).

use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use mcp_middleware::{Entry, Place};
use mcp_runconfig::webhook::{MUTATING, VALIDATING, WebhookConfig, WebhookParameters};
use mcp_runconfig::{
    AuditParameters, AuthParameters, HeaderForward, MiddlewareConfig, OidcConfig, Parameters as _, RunConfig,
    TOOL_CALL_FILTER, TOOL_FILTER, ToolFilterParameters, chain, fold, origin_problem,
};
use mcp_wire::check_structure;
use serde_json::{Map, Value, json};

use crate::RunError;

const PLACES: [&str; 3] = ["/etc/runconfig/runconfig.json", "/etc/toolhive/runconfig.json", "./runconfig.json"];
/// More than a ConfigMap can hold.
const MAX_DOCUMENT: u64 = 4 << 20;
/// Members that ask for a guard. Operators repeat them in `middleware_configs`, which is the truth where it is not empty; where it is, a
/// guard that is not built must not be left out in silence.
const GUARDS: [&str; 8] = [
    "audit_config_path",
    "authz_config",
    "authz_config_path",
    "aws_sts_config",
    "embedded_auth_server_config",
    "rate_limit_config",
    "token_exchange_config",
    "upstream_swap_config",
];

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
    let config = match RunConfig::parse(&document) {
        Ok(config) => config,
        Err(source) => return Err(RunError::Document { path, source: Box::new(source) }),
    };
    // A document that parsed is UTF-8. Which of two members of one name counts must not be left to the reader.
    match std::str::from_utf8(&document).map(check_structure) {
        Ok(Err(ambiguity)) => {
            Err(RunError::Unserved { path, field: "document".to_owned(), problem: ambiguity.to_string() })
        }
        _ => Ok((path, config)),
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
///
/// # Errors
/// The member that asks for a guard that is not built.
pub(crate) fn middleware(config: &RunConfig) -> Result<Vec<Entry>, String> {
    let mut chain = Entry::list("middleware_configs", &config.middleware_configs);
    if chain.is_empty() {
        // Whatever Go's decoder takes for one is one.
        let is_guard = |name: &str| GUARDS.contains(&&*fold(name));
        if let Some((guard, _)) = config.extra.iter().find(|(name, value)| is_guard(name) && is_set(value)) {
            return Err(guard.clone());
        }
        if config.audit_config.is_some() && !chain::is_built(chain::AUDIT) {
            return Err("audit_config".to_owned());
        }
        chain = default_chain(config);
    }
    let mut entries = Vec::new();
    if !config.allowed_origins.is_empty() || chain.iter().all(|entry| entry.config.kind != chain::ORIGIN) {
        entries.push(Entry {
            config: MiddlewareConfig::new(chain::ORIGIN, json!({"allowed_origins": config.allowed_origins})),
            place: Place::Members(&[("parameters.allowed_origins", "allowed_origins")]),
        });
    }
    if config.max_request_body_size > 0 {
        chain.retain(|entry| entry.config.kind != chain::BODY_LIMIT);
        entries.push(Entry {
            config: MiddlewareConfig::new(chain::BODY_LIMIT, json!({"max_bytes": config.max_request_body_size})),
            place: Place::Members(&[("parameters.max_bytes", "max_request_body_size")]),
        });
    }
    // Inside of all that checks: a recovery that stands further out has entries inside of it that these would get ahead of.
    let end = chain.len() - usize::from(chain.last().is_some_and(|entry| entry.config.kind == chain::RECOVERY));
    let additional = Entry::list("additional_middleware_configs", &config.additional_middleware_configs);
    chain.splice(end..end, config.header_forward.as_ref().map(headers).into_iter().chain(additional));
    entries.append(&mut chain);
    Ok(entries)
}

/// The member that asks for a guard or lists an origin, and would have no effect, and why.
pub(crate) fn without_effect(config: &RunConfig) -> Option<(&'static str, String)> {
    let has = |kinds: &[&str]| config.middleware_configs.iter().any(|entry| kinds.contains(&&*entry.kind));
    let guards = [
        ("audit_config", AuditParameters::of(config).is_some(), &[chain::AUDIT][..]),
        ("validating_webhooks", !config.validating_webhooks.is_empty(), &[VALIDATING]),
        ("mutating_webhooks", !config.mutating_webhooks.is_empty(), &[MUTATING]),
        ("tools_filter", !config.tools_filter.is_empty(), &[TOOL_FILTER, TOOL_CALL_FILTER]),
        ("tools_override", !config.tools_override.is_empty(), &[TOOL_FILTER, TOOL_CALL_FILTER]),
    ];
    let ignored =
        guards.into_iter().find(|(_, asked, kinds)| *asked && !config.middleware_configs.is_empty() && !has(kinds));
    let ignored = ignored.map(|(member, _, kinds)| {
        let kinds = kinds.join(" and ");
        (
            member,
            format!(
                "has no effect, as middleware_configs lists the whole chain; add {kinds} there, or leave that list out"
            ),
        )
    });
    let origin = || config.allowed_origins.iter().find_map(|origin| Some(("allowed_origins", origin_problem(origin)?)));
    ignored.or_else(origin)
}

/// The login that an entry of the chain asks for.
pub(crate) fn login(entry: &MiddlewareConfig) -> Option<OidcConfig> {
    let parameters = || AuthParameters::read(entry.parameters.clone(), "").ok();
    (entry.kind == chain::AUTH).then(parameters)??.oidc_config
}

fn default_chain(config: &RunConfig) -> Vec<Entry> {
    let mut entries = chain::default_chain(None);
    let login = AuthParameters { oidc_config: config.oidc_config.clone(), extra: Map::new() };
    entries.iter_mut().filter(|entry| entry.kind == chain::AUTH).for_each(|entry| *entry = login.middleware());
    let tools = ToolFilterParameters {
        filter_tools: config.tools_filter.clone(),
        tools_override: config.tools_override.clone(),
        extra: Map::new(),
    };
    entries.extend(tools.middleware());
    entries.extend(AuditParameters::of(config).map(|audit| audit.middleware()));
    for (kind, webhooks) in [(MUTATING, &config.mutating_webhooks), (VALIDATING, &config.validating_webhooks)] {
        if !webhooks.is_empty() {
            entries.push(MiddlewareConfig::new(kind, parameters(config, webhooks)));
        }
    }
    chain::sort(&mut entries);
    entries.into_iter().map(|config| Entry { place: Place::Members(sources(&config.kind)), config }).collect()
}

/// What adds the headers that the document asks for. An entry of the chain may have some of them already, and never those whose values are secret.
fn headers(HeaderForward { add_plaintext_headers, add_headers_from_secret, .. }: &HeaderForward) -> Entry {
    let parameters = json!({"add_headers": add_plaintext_headers, "add_headers_from_secret": add_headers_from_secret});
    Entry {
        config: MiddlewareConfig::new(chain::HEADER_FORWARD, parameters),
        place: Place::Members(&[
            ("parameters.add_headers_from_secret", "header_forward.add_headers_from_secret"),
            ("parameters.add_headers", "header_forward.add_plaintext_headers"),
            ("type", "header_forward"),
        ]),
    }
}

/// Of which members of the document an entry of the default chain is made.
fn sources(kind: &str) -> &'static [(&'static str, &'static str)] {
    match kind {
        TOOL_FILTER | TOOL_CALL_FILTER => {
            &[("parameters.filter_tools", "tools_filter"), ("parameters.tools_override", "tools_override")]
        }
        chain::AUDIT => &[("parameters.config_data", "audit_config")],
        chain::AUTH => &[("parameters.oidc_config", "oidc_config")],
        MUTATING => &[("parameters.webhooks", "mutating_webhooks")],
        VALIDATING => &[("parameters.webhooks", "validating_webhooks")],
        _ => &[],
    }
}

fn parameters(config: &RunConfig, webhooks: &[WebhookConfig]) -> Value {
    let parameters = WebhookParameters {
        webhooks: webhooks.to_vec(),
        server_name: config.name.clone(),
        transport: config.transport.to_string(),
        extra: Map::new(),
    };
    // Strings, integers and maps with string keys always serialise; null would be refused by the gate.
    serde_json::to_value(parameters).unwrap_or(Value::Null)
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        // An empty configuration asks for a guard with its defaults.
        Value::Bool(true) | Value::Number(_) | Value::Object(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use mcp_middleware::ProxySettings;

    use super::*;

    fn parse(members: &str) -> RunConfig {
        let document = format!(r#"{{"name":"demo","transport":"streamable-http"{members}}}"#);
        RunConfig::parse(document.as_bytes()).unwrap()
    }

    fn entries(members: &str) -> Vec<MiddlewareConfig> {
        middleware(&parse(members)).unwrap().into_iter().map(|entry| entry.config).collect()
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
                format!(r#","middleware_configs":[{{"type":"auth"}}],"validating_webhooks":{webhook}"#),
                vec!["auth"],
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
    fn a_guard_that_is_not_built_is_refused_by_name_not_left_out() {
        for (members, field) in [
            (r#","authz_config_path":"/x","tools_filter":["a"]"#, "authz_config_path"),
            (r#","audit_config":{}"#, "audit_config"),
            (r#","Rate_Limit_Config":{}"#, "Rate_Limit_Config"),
            (r#","to\u212Aen_exchange_config":{}"#, "to\u{212A}en_exchange_config"),
            (r#","aws_\u017Fts_config":{}"#, "aws_\u{17F}ts_config"),
        ] {
            assert_eq!(middleware(&parse(members)).unwrap_err(), field);
        }
        assert!(
            middleware(&parse(r#","oidc_config":null,"tools_filter":[],"tools_override":{},"telemetry_config":{}"#))
                .is_ok()
        );
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
        let same = r#","tools_override":{"a":{"name":"x"},"b":{"name":"x"}}"#;
        let limit = r#"{"type":"bodylimit","parameters":{"max_bytes":5}}"#;
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
                r#","header_forward":{"add_plaintext_headers":{"X-A":"1"}},"middleware_configs":[{"type":"mcp-parser"}],
                    "additional_middleware_configs":[{"type":"auth"}]"#.to_owned(),
                "header_forward",
            ),
            (r#","middleware_configs":[{"type":"auth"},{"type":"x"}]"#.to_owned(), "middleware_configs[1].type"),
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
            let entries = middleware(&parse(&members)).unwrap();
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let settings = ProxySettings::new(SocketAddr::from(([10, 0, 0, 1], 8080)), provider);
            let error = crate::registry::registry().build_entries(&entries, &settings).unwrap_err();
            assert_eq!(error.field, field, "{members}: {error}");
        }
    }
}
