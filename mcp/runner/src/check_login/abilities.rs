//! Abilities of a provider that an MCP client needs: endpoints, PKCE (RFC 7636), a way to be registered, scopes.

use http::Uri;
use mcp_authn::ProviderMetadata;

use crate::check_login::answer::{absolute, is_safe, may_lead};
use crate::check_login::verdict::{Cause, Finding, Judged, Step};
use crate::text::quoted;

/// Scopes of OpenID Connect, which every such provider knows and which mean nothing where no user logs in.
const OF_USERS: [&str; 6] = ["openid", "profile", "email", "address", "phone", "offline_access"];

/// The reason for which the client of this check needs no registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registered {
    /// It has an id.
    Client,
    /// It has a token.
    Token,
    No,
}

/// The token endpoint, where both endpoints can be used that the provider at `from` names.
pub(crate) fn endpoints(metadata: &ProviderMetadata, from: &Uri) -> Judged<Uri> {
    let usable = |name: &str| {
        let Some(url) = metadata.text(name).and_then(absolute) else {
            return Err(Finding::failed(Cause::EndpointMissing, format!("`{name}` is no URL, or absent")));
        };
        let plain = || Finding::failed(Cause::EndpointPlain, format!("`{name}` is {}", quoted(&url.to_string())));
        if may_lead(from, &url) { Ok(url) } else { Err(plain()) }
    };
    usable("authorization_endpoint")?;
    let token = usable("token_endpoint")?;
    Ok((token, Finding::ok(Step::Endpoints, "`authorization_endpoint` and `token_endpoint` can be used")))
}

/// Whether the metadata name S256, without which a client must not go on.
pub(crate) fn pkce(metadata: &ProviderMetadata) -> Finding {
    match metadata.list("code_challenge_methods_supported") {
        Some(methods) if methods.contains(&"S256") => Finding::ok(Step::Pkce, "S256 is among the methods"),
        Some(methods) => {
            let seen = format!("`code_challenge_methods_supported` is {}", quoted(&methods.join(" ")));
            Finding::failed(Cause::PkceWithoutS256, seen)
        }
        None => Finding::failed(Cause::PkceUnnamed, "`code_challenge_methods_supported` is absent, or no list"),
    }
}

/// The way in which a client gets an id, by the metadata: nothing is registered here.
pub(crate) fn registration(metadata: &ProviderMetadata, registered: Registered) -> Finding {
    let ok = |seen: &str| Finding::ok(Step::Registration, seen);
    if registered == Registered::Client {
        return ok("the client is registered: --client-id is given");
    }
    if metadata.says("client_id_metadata_document_supported") {
        return ok("clients may bring a client ID metadata document");
    }
    match metadata.text("registration_endpoint").map(|text| (text, absolute(text).filter(is_safe))) {
        Some((_, Some(_))) => ok("clients register themselves (dynamic registration, RFC 7591)"),
        Some((text, None)) => {
            Finding::failed(Cause::RegistrationPlain, format!("`registration_endpoint` is {}", quoted(text)))
        }
        None => {
            let seen = "the provider takes neither client ID metadata documents nor dynamic registration";
            match registered {
                Registered::Token => Finding::note(Cause::NoRegistration, seen),
                _ => Finding::failed(Cause::NoRegistration, seen),
            }
        }
    }
}

/// The scopes that a client asks for: those of the challenge, else all that the resource names.
pub(crate) fn wanted(challenge: Option<&str>, resource: Option<&[String]>) -> Vec<String> {
    match (challenge, resource) {
        (Some(scopes), _) => scopes.split_ascii_whitespace().map(str::to_owned).collect(),
        (None, resource) => resource.unwrap_or_default().to_vec(),
    }
}

/// The scopes among `wanted` that make sense for a client of its own.
pub(crate) fn of_machines(wanted: &[String]) -> String {
    let scopes: Vec<_> = wanted.iter().map(String::as_str).filter(|scope| !OF_USERS.contains(scope)).collect();
    scopes.join(" ")
}

/// Whether the provider names the scopes that a client asks for. It may leave some out, so that this is no failure yet.
pub(crate) fn scopes(metadata: &ProviderMetadata, wanted: &[String]) -> Finding {
    let Some(listed) = metadata.list("scopes_supported") else {
        return Finding::ok(
            Step::Scopes,
            format!("a client asks for {}; the provider lists none", quoted(&wanted.join(" "))),
        );
    };
    let unknown: Vec<_> = wanted.iter().map(String::as_str).filter(|scope| !listed.contains(scope)).collect();
    if unknown.is_empty() {
        return Finding::ok(Step::Scopes, format!("a client asks for {}", quoted(&wanted.join(" "))));
    }
    let seen = format!(
        "a client asks for {}, and the provider lists {}",
        quoted(&unknown.join(" ")),
        quoted(&listed.join(" "))
    );
    Finding::note(Cause::ScopeNotListed, seen)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::check_login::verdict::Status;

    fn metadata(members: &Value) -> ProviderMetadata {
        let mut document = json!({"issuer": "https://i"});
        document.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        ProviderMetadata::parse(document.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_client_is_registered_in_the_order_of_mcp() {
        for (members, registered, status, seen) in [
            (json!({}), Registered::No, Status::Failed, "neither"),
            (json!({}), Registered::Client, Status::Ok, "--client-id"),
            (json!({}), Registered::Token, Status::Note, "neither"),
            (json!({"client_id_metadata_document_supported": true}), Registered::No, Status::Ok, "document"),
            (json!({"registration_endpoint": "https://i/register"}), Registered::No, Status::Ok, "register themselves"),
            (
                json!({"registration_endpoint": "http://i/register"}),
                Registered::No,
                Status::Failed,
                "http://i/register",
            ),
            (json!({"client_id_metadata_document_supported": false}), Registered::No, Status::Failed, "neither"),
        ] {
            let finding = registration(&metadata(&members), registered);
            assert_eq!(finding.status, status, "{members}");
            assert!(finding.seen.contains(seen), "{members}: {}", finding.seen);
        }
    }

    #[test]
    fn the_scopes_of_the_challenge_come_before_the_listed_ones() {
        let listed = ["a".to_owned(), "openid".to_owned()];
        assert_eq!(wanted(Some("x  y"), Some(&listed)), ["x", "y"]);
        assert_eq!(wanted(None, Some(&listed)), ["a", "openid"]);
        assert!(wanted(None, None).is_empty());
        assert_eq!(of_machines(&listed), "a");
    }

    #[test]
    fn endpoints_and_pkce_are_needed() {
        let both = |token: &str| json!({"authorization_endpoint": "https://i/a", "token_endpoint": token});
        for (from, members, cause) in [
            ("https://i", both("https://i/t"), None),
            ("http://localhost", both("http://127.0.0.1/t"), None),
            ("https://i", both("http://127.0.0.1/t"), Some(Cause::EndpointPlain)),
            ("https://i", both("http://i/t"), Some(Cause::EndpointPlain)),
            ("https://i", both("/t"), Some(Cause::EndpointMissing)),
            ("https://i", json!({}), Some(Cause::EndpointMissing)),
        ] {
            let found = endpoints(&metadata(&members), &Uri::from_static(from));
            assert_eq!(found.err().and_then(|finding| finding.cause), cause, "{from} {members}");
        }
        for (members, cause) in [
            (json!({"code_challenge_methods_supported": ["plain", "S256"]}), None),
            (json!({"code_challenge_methods_supported": ["plain"]}), Some(Cause::PkceWithoutS256)),
            (json!({}), Some(Cause::PkceUnnamed)),
        ] {
            assert_eq!(pkce(&metadata(&members)).cause, cause, "{members}");
        }
    }
}
