//! The protected-resource metadata (RFC 9728): where they are, and whose they are.

use http::Uri;
use http::uri::PathAndQuery;
use mcp_authn::resource_metadata_url;
use serde_json::Value;

use crate::check_login::answer::{Call, Causes, absolute, document, is_loopback, is_safe, may_lead, origin, shown};
use crate::check_login::challenge::Challenge;
use crate::check_login::verdict::{Cause, Finding, Judged, Step};
use crate::text::quoted;

/// The members of the metadata that a client reads.
#[derive(Clone, Debug)]
pub(crate) struct ResourceMetadata {
    pub(crate) resource: String,
    pub(crate) authorization_servers: Vec<String>,
    pub(crate) scopes: Option<Vec<String>>,
}

const CAUSES: Causes = Causes {
    unreachable: Cause::ResourceMetadataUnreachable,
    certificate: Cause::ResourceMetadataCertificate,
    slow: Cause::ResourceMetadataSlow,
    too_long: Cause::ResourceMetadataTooLong,
    redirects: Cause::ResourceMetadataRedirects,
    fails: Cause::ResourceMetadataMissing,
    missing: Cause::ResourceMetadataMissing,
    no_json: Cause::ResourceMetadataNoJson,
};

/// The URLs at which a client looks, in its order: the one that the challenge names alone, else the well-known ones of MCP.
pub(crate) fn places(url: &Uri, challenge: &Challenge) -> Result<Vec<Uri>, Finding> {
    let Some(named) = &challenge.resource_metadata else {
        let root = resource_metadata_url(&origin(url));
        let mut places = vec![resource_metadata_url(&url.to_string()), root];
        places.dedup();
        return Ok(places.into_iter().flatten().filter_map(|place| place.parse().ok()).collect());
    };
    let place = absolute(named).ok_or_else(|| {
        Finding::failed(
            Cause::PointerRelative,
            format!("resource_metadata is {}, which is no absolute URL", quoted(&shown(named))),
        )
    })?;
    // A server that is itself called by plain http has been noted already.
    if !may_lead(url, &place) && (is_safe(url) || is_loopback(&place)) {
        return Err(Finding::failed(Cause::PointerPlain, format!("resource_metadata is {}", quoted(&shown(named)))));
    }
    Ok(vec![place])
}

/// Reads the metadata that the last of `calls` brought.
pub(crate) fn read(calls: &[Call]) -> Judged<ResourceMetadata> {
    let (call, answer) = document(calls, &CAUSES)?;
    let object = answer.object().unwrap_or_default();
    let list = |name: &str| {
        let list = object.get(name)?.as_array()?;
        Some(list.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>())
    };
    let Some(resource) = object.get("resource").and_then(Value::as_str) else {
        return Err(Finding::failed(Cause::ResourceMetadataInvalid, format!("{call}, without the text `resource`")));
    };
    let servers = object.get("authorization_servers").cloned().unwrap_or_else(|| Value::Array(Vec::new()));
    let Ok(authorization_servers) = serde_json::from_value(servers) else {
        let seen = format!("{call}, whose `authorization_servers` is no list of texts");
        return Err(Finding::failed(Cause::ResourceMetadataInvalid, seen));
    };
    let metadata =
        ResourceMetadata { resource: resource.to_owned(), authorization_servers, scopes: list("scopes_supported") };
    Ok((metadata, Finding::ok(Step::ResourceMetadata, call.to_string())))
}

/// Whether the metadata are of the server that the client called (RFC 9728 §3.3): where the server named the place, `resource` is the URL that was
/// called. `at_root`: they were found below the host alone, without a word of the server's, and are of the host. A parent is none of this, and some
/// clients take it, such as those of MCP's SDK for TypeScript; others, such as VS Code, do not.
pub(crate) fn judge(url: &Uri, resource: &str, at_root: bool) -> Finding {
    let is = format!("`resource` is {}", quoted(&shown(resource)));
    let seen = format!("{is}, and the client called {}", quoted(&shown(&url.to_string())));
    let named = absolute(resource).filter(|_| !resource.contains('#'));
    let Some(named) = named.filter(|named| same_origin(named, url)) else {
        return Finding::failed(Cause::ResourceDiffers, seen);
    };
    let path = |url: &Uri| url.path_and_query().map_or("/", PathAndQuery::as_str).to_owned();
    let (named, called) = (path(&named), path(url));
    let (named_stem, called_stem) = (named.trim_end_matches('/'), called.trim_end_matches('/'));
    if named == called || at_root && named_stem.is_empty() {
        return Finding::ok(Step::Resource, is);
    }
    if named_stem == called_stem {
        return Finding::failed(Cause::ResourceSlash, seen);
    }
    let is_parent = called_stem.strip_prefix(named_stem).is_some_and(|rest| rest.starts_with('/'));
    if is_parent { Finding::note(Cause::ResourceParent, seen) } else { Finding::failed(Cause::ResourceDiffers, seen) }
}

fn same_origin(one: &Uri, other: &Uri) -> bool {
    let parts = |url: &Uri| {
        let default = if url.scheme_str() == Some("https") { 443 } else { 80 };
        (
            url.scheme_str().map(str::to_owned),
            url.host().map(str::to_ascii_lowercase),
            url.port_u16().unwrap_or(default),
        )
    };
    parts(one) == parts(other)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::check_login::answer::NoAnswer;
    use crate::check_login::verdict::Status;

    #[test]
    fn a_resource_is_compared_to_the_letter_of_its_path() {
        let (ok, failed, note) = (Status::Ok, Status::Failed, Status::Note);
        for (called, resource, at_root, status, cause) in [
            ("https://h/mcp", "https://h/mcp", false, ok, None),
            ("https://h/mcp", "HTTPS://H:443/mcp", false, ok, None),
            ("https://h", "https://h/", false, ok, None),
            ("https://h/mcp", "https://h/MCP", false, failed, Some(Cause::ResourceDiffers)),
            ("https://[::1]:1/mcp?a=b", "https://[::1]:1/mcp?a=b", false, ok, None),
            ("https://h/mcp?a=b", "https://h/mcp", false, failed, Some(Cause::ResourceDiffers)),
            ("https://h/mcp", "https://h/mcp/", false, failed, Some(Cause::ResourceSlash)),
            ("https://h/mcp/", "https://h/mcp", false, failed, Some(Cause::ResourceSlash)),
            ("https://h/a/mcp", "https://h/a", false, note, Some(Cause::ResourceParent)),
            ("https://h/mcp", "https://h", false, note, Some(Cause::ResourceParent)),
            ("https://h/mcp", "https://h", true, ok, None),
            // The default of resourceUrl, and that of ToolHive, whose Service has another name.
            ("http://mcp-n-proxy.ns:8080/mcp", "http://mcp-n-proxy.ns:8080", false, note, Some(Cause::ResourceParent)),
            ("http://mcp-n-proxy.ns:8080/mcp", "http://n.ns:8080", false, failed, Some(Cause::ResourceDiffers)),
            ("https://h/mcp", "https://h/m", false, failed, Some(Cause::ResourceDiffers)),
            ("https://h/mcp", "https://h/mcp/x", false, failed, Some(Cause::ResourceDiffers)),
            ("https://h/mcp", "http://h/mcp", false, failed, Some(Cause::ResourceDiffers)),
            ("https://h/mcp", "https://h:8443/mcp", false, failed, Some(Cause::ResourceDiffers)),
            ("https://h/mcp", "https://other/mcp", true, failed, Some(Cause::ResourceDiffers)),
            ("https://h/mcp", "https://h/mcp#x", false, failed, Some(Cause::ResourceDiffers)),
            ("https://h/mcp", "mcp", false, failed, Some(Cause::ResourceDiffers)),
        ] {
            let finding = judge(&Uri::from_static(called), resource, at_root);
            assert_eq!((finding.status, finding.cause), (status, cause), "{called} {resource}");
        }
    }

    #[test]
    fn a_certificate_that_is_not_trusted_is_told_from_no_connection() {
        for (answer, cause) in [
            (NoAnswer::Certificate("UnknownIssuer".to_owned()), Cause::ResourceMetadataCertificate),
            (NoAnswer::Unreachable("refused".to_owned()), Cause::ResourceMetadataUnreachable),
        ] {
            let call = Call { method: Method::GET, url: Uri::from_static("https://h"), answer: Err(answer) };
            assert_eq!(read(&[call]).err().and_then(|finding| finding.cause), Some(cause));
        }
    }

    #[test]
    fn a_client_looks_at_the_path_and_then_at_the_root() {
        for (url, expected) in [
            (
                "https://h/a/mcp",
                &[
                    "https://h/.well-known/oauth-protected-resource/a/mcp",
                    "https://h/.well-known/oauth-protected-resource",
                ][..],
            ),
            ("https://h", &["https://h/.well-known/oauth-protected-resource"]),
        ] {
            let places = places(&Uri::from_static(url), &Challenge::default()).unwrap();
            assert_eq!(places.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
        }
        for (named, cause) in [
            ("/.well-known/oauth-protected-resource", Some(Cause::PointerRelative)),
            ("http://h/.well-known/oauth-protected-resource", Some(Cause::PointerPlain)),
            ("http://127.0.0.1/.well-known/oauth-protected-resource", Some(Cause::PointerPlain)),
            ("https://other/x", None),
        ] {
            let challenge = Challenge { resource_metadata: Some(named.to_owned()), ..Challenge::default() };
            let found = places(&Uri::from_static("https://h/mcp"), &challenge);
            assert_eq!(found.err().and_then(|finding| finding.cause), cause, "{named}");
        }
    }
}
