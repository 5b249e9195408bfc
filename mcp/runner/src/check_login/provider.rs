//! The provider (MCP's authorization server): where its metadata are (RFC 8414, OpenID Connect Discovery), and whether they are its own.

use http::Uri;
use mcp_authn::{ProviderMetadata, provider_metadata_url};

use crate::check_login::answer::{Call, Causes, absolute, document, may_lead, origin};
use crate::check_login::resource::ResourceMetadata;
use crate::check_login::verdict::{Cause, Finding, Judged, Step};
use crate::text::quoted;

const CAUSES: Causes = Causes {
    unreachable: Cause::ProviderUnreachable,
    certificate: Cause::ProviderCertificate,
    slow: Cause::ProviderSlow,
    too_long: Cause::ProviderTooLong,
    redirects: Cause::ProviderRedirects,
    fails: Cause::ProviderFails,
    missing: Cause::ProviderMetadataMissing,
    no_json: Cause::ProviderMetadataNoJson,
};

/// The issuer that a client takes: among those that the server at `server` names, its own, else the first.
pub(crate) fn issuer(metadata: &ResourceMetadata, server: &Uri, own: Option<&str>) -> Judged<(String, Uri)> {
    let named = &metadata.authorization_servers;
    let Some(issuer) = named.iter().find(|named| own == Some(named)).or(named.first()) else {
        return Err(Finding::failed(Cause::NoAuthorizationServer, "`authorization_servers` names none"));
    };
    let url = absolute(issuer).filter(|url| url.query().is_none() && !issuer.contains('#'));
    let url = url.ok_or_else(|| {
        Finding::failed(Cause::IssuerInvalid, format!("`authorization_servers` names {}", quoted(issuer)))
    })?;
    if !may_lead(server, &url) {
        return Err(Finding::failed(Cause::IssuerPlain, format!("the issuer is {}", quoted(issuer))));
    }
    let others = if named.len() > 1 { format!(", one of {}", named.len()) } else { String::new() };
    let finding = Finding::ok(Step::AuthorizationServer, format!("the issuer is {}{others}", quoted(issuer)));
    Ok(((issuer.clone(), url), finding))
}

/// The URLs at which a client looks for the metadata of `issuer`, in MCP's order.
pub(crate) fn places(issuer: &str, url: &Uri) -> Vec<Uri> {
    let (origin, path) = (origin(url), url.path().trim_end_matches('/'));
    let inserted = |name: &str| format!("{origin}/.well-known/{name}{path}");
    let mut places = vec![inserted("oauth-authorization-server"), inserted("openid-configuration")];
    if !path.is_empty() {
        places.push(provider_metadata_url(issuer));
    }
    places.iter().filter_map(|place| place.parse().ok()).collect()
}

/// Reads the metadata that the last of `calls` brought.
pub(crate) fn read(calls: &[Call]) -> Judged<ProviderMetadata> {
    let (call, answer) = document(calls, &CAUSES)?;
    match ProviderMetadata::parse(&answer.body) {
        Ok(metadata) => Ok((metadata, Finding::ok(Step::ProviderMetadata, call.to_string()))),
        Err(problem) => Err(Finding::failed(Cause::ProviderMetadataInvalid, format!("{call}, which {problem}"))),
    }
}

/// Whether the metadata are those of the issuer that was asked for (RFC 8414 §3.3).
pub(crate) fn judge(metadata: &ProviderMetadata, issuer: &str) -> Finding {
    if metadata.issuer == issuer {
        return Finding::ok(Step::Issuer, format!("`issuer` is {}", quoted(issuer)));
    }
    let (says, asked) = (quoted(&metadata.issuer), quoted(issuer));
    Finding::failed(Cause::IssuerDiffers, format!("the metadata are of {says}, and the server names {asked}"))
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::check_login::answer::NoAnswer;

    #[test]
    fn metadata_are_looked_for_in_the_order_of_mcp() {
        for (issuer, expected) in [
            (
                "https://i/realms/x/",
                &[
                    "https://i/.well-known/oauth-authorization-server/realms/x",
                    "https://i/.well-known/openid-configuration/realms/x",
                    "https://i/realms/x/.well-known/openid-configuration",
                ][..],
            ),
            (
                "https://i:8443",
                &[
                    "https://i:8443/.well-known/oauth-authorization-server",
                    "https://i:8443/.well-known/openid-configuration",
                ],
            ),
        ] {
            let places = places(issuer, &issuer.parse().unwrap());
            assert_eq!(places.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn a_certificate_that_is_not_trusted_is_told_from_no_connection() {
        for (answer, cause) in [
            (NoAnswer::Certificate("UnknownIssuer".to_owned()), Cause::ProviderCertificate),
            (NoAnswer::Unreachable("refused".to_owned()), Cause::ProviderUnreachable),
        ] {
            let call = Call { method: Method::GET, url: Uri::from_static("https://i"), answer: Err(answer) };
            assert_eq!(read(&[call]).err().and_then(|finding| finding.cause), Some(cause));
        }
    }

    #[test]
    fn an_issuer_is_an_https_url_or_on_this_machine() {
        for (servers, cause) in [
            (&["https://i/x"][..], None),
            (&["http://127.0.0.1:9", "https://i"], None),
            (&["http://i"], Some(Cause::IssuerPlain)),
            (&["i.example"], Some(Cause::IssuerInvalid)),
            (&["https://i?tenant=x"], Some(Cause::IssuerInvalid)),
            (&["https://i#x"], Some(Cause::IssuerInvalid)),
            (&[], Some(Cause::NoAuthorizationServer)),
        ] {
            let authorization_servers = servers.iter().map(ToString::to_string).collect();
            let metadata = ResourceMetadata { resource: String::new(), authorization_servers, scopes: None };
            let found = issuer(&metadata, &Uri::from_static("https://127.0.0.1/mcp"), None);
            assert_eq!(found.err().and_then(|finding| finding.cause), cause, "{servers:?}");
        }
    }

    #[test]
    fn a_client_takes_its_own_issuer_among_several() {
        let authorization_servers = vec!["https://a".to_owned(), "https://b".to_owned()];
        let metadata = ResourceMetadata { resource: String::new(), authorization_servers, scopes: None };
        for (own, taken) in [(None, "https://a"), (Some("https://b"), "https://b"), (Some("https://c"), "https://a")] {
            let ((found, _), _) = issuer(&metadata, &Uri::from_static("https://h/mcp"), own).unwrap();
            assert_eq!(found, taken);
        }
    }
}
