//! `spec.headerForward`: headers that the proxy adds to each request for the remote server.
//!
//! The value of a header from a Secret is in no document: the RunConfig holds an identifier, and a variable of the proxy's
//! container, named after it, the value.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::EnvVar;
use mcp_api::v1beta1::{HeaderForward, HeaderFromSecret, MCPRemoteProxySpec};
use mcp_plan::{
    oauth::header_problem,
    problem::Problem,
    reference::{Content, Reference, SECRET, SecretVariable, incomplete_key},
    workload::proxy::variable,
};
use mcp_runconfig::environment::{SECRET_PREFIX, SECRETS_PROVIDER};

/// The field that names the Secrets.
const SECRET_FIELD: &str = "spec.headerForward.addHeadersFromSecret";
const PLAIN_FIELD: &str = "spec.headerForward.addPlaintextHeaders";

/// The headers whose values are in Secrets.
pub(super) fn from_secrets(spec: &MCPRemoteProxySpec) -> &[HeaderFromSecret] {
    spec.header_forward.as_ref().and_then(|it| it.add_headers_from_secret.as_deref()).unwrap_or_default()
}

/// The names of all added headers.
pub(super) fn names(spec: &MCPRemoteProxySpec) -> Vec<String> {
    let plain =
        spec.header_forward.iter().flat_map(|it| it.add_plaintext_headers.iter().flatten().map(|(name, _)| name));
    plain.chain(from_secrets(spec).iter().map(|header| &header.header_name)).cloned().collect()
}

/// References to the Secrets that hold values of headers.
pub(super) fn references(spec: &MCPRemoteProxySpec) -> impl Iterator<Item = Reference> {
    from_secrets(spec).iter().enumerate().map(|(at, HeaderFromSecret { value_secret_ref: it, .. })| {
        Reference::of_proxy(format!("{SECRET_FIELD}[{at}].valueSecretRef"), SECRET, &it.name).with_key(&it.key)
    })
}

/// The document's member; none where no header is added.
pub(super) fn document(owner: &str, spec: &MCPRemoteProxySpec) -> Option<mcp_runconfig::HeaderForward> {
    let HeaderForward { add_plaintext_headers, .. } = spec.header_forward.as_ref()?;
    let plain = add_plaintext_headers.clone().unwrap_or_default();
    let secret: BTreeMap<_, _> = from_secrets(spec)
        .iter()
        .map(|header| (header.header_name.clone(), identifier(&header.header_name, owner)))
        .collect();
    if plain.is_empty() && secret.is_empty() {
        return None;
    }
    Some(mcp_runconfig::HeaderForward { add_plaintext_headers: plain, add_headers_from_secret: secret })
}

/// The variables with their values, in the order of the spec.
pub(super) fn variables(owner: &str, spec: &MCPRemoteProxySpec) -> Vec<SecretVariable> {
    let each = from_secrets(spec).iter().map(|HeaderFromSecret { header_name, value_secret_ref }| SecretVariable {
        name: format!("{SECRET_PREFIX}{}", identifier(header_name, owner)).into(),
        secret: value_secret_ref.name.clone(),
        key: value_secret_ref.key.clone(),
        content: Content::Header,
    });
    each.collect()
}

/// The variable that makes the proxy look for them there; none where there are none.
pub(super) fn provider(spec: &MCPRemoteProxySpec) -> Option<EnvVar> {
    let wanted = !from_secrets(spec).is_empty();
    wanted.then(|| variable(SECRETS_PROVIDER, "environment"))
}

/// The rules that they break.
pub(super) fn problems(spec: &MCPRemoteProxySpec) -> Vec<Problem> {
    let mut problems = Vec::new();
    let (mut names, mut identifiers) = (BTreeSet::new(), BTreeSet::new());
    let plain = spec.header_forward.iter().flat_map(|it| it.add_plaintext_headers.iter().flatten());
    for (name, value) in plain {
        let field = format!("{PLAIN_FIELD}[{name}]");
        problems.extend(header_problem(name).map(|message| Problem::new(&*field, message)));
        if !is_value(value) {
            let message = "is not a header's value; write one line of printable ASCII without spaces at its ends";
            problems.push(Problem::new(&*field, message));
        }
        if !names.insert(name.to_ascii_lowercase()) {
            problems.push(Problem::new(field, format!("{name:?} is there twice in another case; drop one of them")));
        }
    }
    for (at, HeaderFromSecret { header_name, value_secret_ref }) in from_secrets(spec).iter().enumerate() {
        let field = format!("{SECRET_FIELD}[{at}].headerName");
        problems.extend(header_problem(header_name).map(|message| Problem::new(&*field, message)));
        if !names.insert(header_name.to_ascii_lowercase()) {
            problems.push(Problem::new(field, format!("{header_name:?} is added twice; drop one of them")));
        } else if !identifiers.insert(shouted(header_name)) {
            let message = format!(
                "{header_name:?} differs from another header in special characters only, and their values would be mixed up; drop one of them"
            );
            problems.push(Problem::new(field, message));
        }
        if let Some(message) = incomplete_key(&value_secret_ref.name, &value_secret_ref.key) {
            problems.push(Problem::new(format!("{SECRET_FIELD}[{at}].valueSecretRef"), message));
        }
    }
    problems
}

/// The reference to the secret of a header, which is not secret itself.
fn identifier(header: &str, owner: &str) -> String {
    format!("HEADER_FORWARD_{}_{}", shouted(header), shouted(owner))
}

/// As a part of a variable's name.
fn shouted(text: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_uppercase() } else { '_' };
    text.chars().map(letter).collect()
}

fn is_value(value: &str) -> bool {
    let inner = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
    value.bytes().all(inner) && value.trim() == value
}
