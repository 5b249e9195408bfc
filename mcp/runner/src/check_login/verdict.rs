//! Steps of a login, the verdicts on them, and the findings of one check.

/// Declares the steps in the order in which a client takes them: each with its name in reports.
macro_rules! steps {
    ($($step:ident $name:literal)+) => {
        /// A step of a login.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Step { $($step),+ }

        impl Step {
            pub(crate) const ALL: &[Self] = &[$(Self::$step),+];

            /// The name that programs know it by.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$step => $name),+ }
            }
        }
    };
}

steps! {
    Reach "reach"
    Challenge "challenge"
    ResourceMetadata "resource-metadata"
    Resource "resource"
    AuthorizationServer "authorization-server"
    ProviderMetadata "provider-metadata"
    Issuer "issuer"
    Endpoints "endpoints"
    Pkce "pkce"
    Registration "registration"
    Scopes "scopes"
    Clock "clock"
    Token "token"
    Initialize "initialize"
    Browser "browser"
}

/// The party that has to change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Proxy,
    Provider,
    Client,
}

impl Side {
    /// The name that programs know it by.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Provider => "provider",
            Self::Client => "client",
        }
    }

    pub(crate) fn person(self) -> &'static str {
        match self {
            Self::Proxy => "the operator of the proxy",
            Self::Provider => "the administrator of the provider",
            Self::Client => "the user of the client",
        }
    }
}

/// A row of the table of verdicts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    pub(crate) name: &'static str,
    pub(crate) step: Step,
    pub(crate) side: Side,
    pub(crate) cure: &'static str,
}

/// Declares the table of verdicts.
macro_rules! verdicts {
    ($($step:ident { $($cause:ident $name:literal $side:ident $cure:literal)+ })+) => {
        /// Why a step fails, or what to note of it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Cause { $($($cause),+),+ }

        impl Cause {
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$($(Self::$cause),+),+];

            pub(crate) fn verdict(self) -> Verdict {
                match self {
                    $($(Self::$cause => Verdict { name: $name, step: Step::$step, side: Side::$side, cure: $cure }),+),+
                }
            }
        }
    };
}

verdicts! {
    Reach {
        ServerUnreachable "server-unreachable" Client "Check the URL: http or https, its name in DNS and its port; in Kubernetes, the proxy's Service, its Ingress and the NetworkPolicies between. This check calls it directly, whatever HTTPS_PROXY says."
        ServerCertificate "server-certificate" Proxy "Serve a certificate that is in date, for the name in the URL, of an authority that clients trust, with its intermediates. Where clients trust an authority of your own, give it to this check by --ca-bundle."
        ServerSlow "server-slow" Proxy "Look for what holds the answer back: an Ingress that waits for a pod, a proxy without CPU. --timeout gives it longer."
        ServerTooLong "server-too-long" Proxy "Check that the URL leads to an MCP server: an answer to a caller without a token is short."
        PlainHttp "plain-http" Proxy "Serve the URL by https (TLS at the Ingress or Gateway): tokens travel in the clear otherwise, and most clients refuse such a URL outside of their machine."
    }
    Challenge {
        NoLogin "no-login" Proxy "Nothing to log in to: require a login by spec.oidcConfigRef of the MCPServer or MCPRemoteProxy, and see GuardsEnforced in its status."
        ServerRedirects "server-redirects" Proxy "Let the URL lead to the proxy itself: take it out of the single sign-on in front, or give clients the URL that the redirect leads to. Clients send a POST, which a redirect makes a GET."
        ServerForbids "server-forbids" Proxy "Let callers without a token come as far as the proxy: the refusal is by something in front of it, or by its check of Host and Origin. Clients begin a login on 401 alone."
        WrongPath "wrong-path" Client "Use the URL of the MCP endpoint: for proxies of Portcullis its path is /mcp, or /sse for servers of HTTP with SSE; behind an Ingress, with the path that leads there."
        ServerFails "server-fails" Proxy "Look into the log of the proxy, and of the Ingress before it."
        NoChallenge "no-challenge" Proxy "Answer calls without a token with 401 and WWW-Authenticate: Bearer: clients begin a login on nothing else."
        NoPointer "no-pointer" Proxy "Name the metadata in the challenge: WWW-Authenticate: Bearer resource_metadata=\"URL\". A proxy of Portcullis does when spec.oidcConfigRef.resourceUrl is a URL; something in front of it may take the header away."
    }
    ResourceMetadata {
        PointerRelative "pointer-relative" Proxy "Write an absolute URL into resource_metadata; clients drop any other. In Portcullis it is made of spec.oidcConfigRef.resourceUrl."
        PointerPlain "pointer-plain" Proxy "Write an https URL into resource_metadata. In Portcullis: give spec.oidcConfigRef.resourceUrl the https URL that clients call, not the address of the Service."
        ResourceMetadataUnreachable "resource-metadata-unreachable" Proxy "Let resource_metadata be a URL that clients reach. In Portcullis: give spec.oidcConfigRef.resourceUrl the URL that clients call; without it, it is the address of the Service, which is known in the cluster alone."
        ResourceMetadataCertificate "resource-metadata-certificate" Proxy "Serve the metadata with a certificate that clients trust, as the MCP endpoint."
        ResourceMetadataSlow "resource-metadata-slow" Proxy "Lead /.well-known/oauth-protected-resource to the proxy, which answers at once from memory."
        ResourceMetadataTooLong "resource-metadata-too-long" Proxy "Lead /.well-known/oauth-protected-resource to the proxy; its document is short."
        ResourceMetadataRedirects "resource-metadata-redirects" Proxy "Serve the metadata where the challenge says, without a redirect and without a login: many clients follow none. Route /.well-known/oauth-protected-resource to the proxy, and exempt it from single sign-on."
        ResourceMetadataMissing "resource-metadata-missing" Proxy "Route /.well-known/oauth-protected-resource (with all paths below) to the proxy, beside the path of the MCP endpoint; in Portcullis also set spec.oidcConfigRef.resourceUrl, without which a RunConfig has no such document."
        ResourceMetadataNoJson "resource-metadata-no-json" Proxy "Route /.well-known/oauth-protected-resource to the proxy: a web application or a login page answers there."
        ResourceMetadataInvalid "resource-metadata-invalid" Proxy "Serve a document of RFC 9728 there: an object with `resource` and `authorization_servers`."
    }
    Resource {
        ResourceDiffers "resource-differs" Proxy "Set spec.oidcConfigRef.resourceUrl of the MCPServer or MCPRemoteProxy to the URL that clients call, to the letter; or have clients call the URL that it names."
        ResourceSlash "resource-slash" Proxy "Give spec.oidcConfigRef.resourceUrl the URL that clients call, with or without the slash at its end as they have it: the provider writes it into tokens, and a slash makes another audience."
        ResourceParent "resource-parent" Proxy "Set spec.oidcConfigRef.resourceUrl to the whole URL that clients call; without it, a proxy names its Service without a path. RFC 9728 (section 3.3) asks for the same URL: some clients take a parent of it, others refuse it."
    }
    AuthorizationServer {
        NoAuthorizationServer "no-authorization-server" Proxy "Name the issuer: in Portcullis spec.inline.issuer of the MCPOIDCConfig, which jwksUrl does not replace for clients."
        IssuerInvalid "issuer-invalid" Proxy "Write the provider's issuer as an absolute https URL, without query and fragment: spec.inline.issuer of the MCPOIDCConfig."
        IssuerPlain "issuer-plain" Provider "Serve the provider by https, and write its new issuer into spec.inline.issuer of the MCPOIDCConfig: clients refuse an http issuer that is not on their own machine."
    }
    ProviderMetadata {
        ProviderUnreachable "provider-unreachable" Provider "Make the issuer's address one that clients reach, not only the proxy: a name of the cluster is none. Then write it into spec.inline.issuer of the MCPOIDCConfig."
        ProviderCertificate "provider-certificate" Provider "Serve a certificate that is in date, for the issuer's name, of an authority that clients trust, with its intermediates. For an authority of your own: --ca-bundle of this check, caBundleRef of the MCPOIDCConfig, and each client's own setting."
        ProviderSlow "provider-slow" Provider "Look for what holds the provider's metadata back; clients give up after some seconds."
        ProviderTooLong "provider-too-long" Provider "Check that the issuer is the provider's: its metadata are a few kilobytes."
        ProviderRedirects "provider-redirects" Proxy "Write the issuer into spec.inline.issuer of the MCPOIDCConfig to which the redirect leads, if its metadata name it; many clients follow no redirect there."
        ProviderFails "provider-fails" Provider "Look into the provider's log, and into that of what is before it: its metadata cannot be had for an error of its own."
        ProviderMetadataMissing "provider-metadata-missing" Proxy "Compare spec.inline.issuer of the MCPOIDCConfig with the `iss` of a token of the provider (a realm or tenant in its path?); a provider without metadata at any of these URLs cannot be used by MCP clients."
        ProviderMetadataNoJson "provider-metadata-no-json" Provider "Let each of these URLs answer with the metadata or 404: clients stop at the first that answers, and a web page is no metadata."
        ProviderMetadataInvalid "provider-metadata-invalid" Provider "Serve metadata of RFC 8414 or OpenID Connect Discovery: an object with `issuer`."
    }
    Issuer {
        IssuerDiffers "issuer-differs" Proxy "Set spec.inline.issuer of the MCPOIDCConfig to the issuer that the provider's metadata name, to the letter (slash at the end, realm, tenant, port); or correct the provider's own address if it names a wrong one."
    }
    Endpoints {
        EndpointMissing "endpoint-missing" Provider "Enable the authorization code flow at the provider: its metadata must have authorization_endpoint and token_endpoint."
        EndpointPlain "endpoint-plain" Provider "Have the provider name its endpoints by https: behind a reverse proxy it must be told its public address (X-Forwarded-Proto, or its setting for that)."
    }
    Pkce {
        PkceUnnamed "pkce-unnamed" Provider "Have the metadata name code_challenge_methods_supported: [\"S256\"]: MCP clients stop without it, even where the provider takes PKCE. For a provider that cannot (such as Entra ID or Cognito), serve its metadata with that member from an issuer of your own."
        PkceWithoutS256 "pkce-without-s256" Provider "Enable S256 as a method of PKCE at the provider; MCP clients use no other."
    }
    Registration {
        NoRegistration "no-registration" Client "Register the client at the provider by hand, with its redirect URI, and give the client that id (and secret): it has no way to register itself. Or enable client ID metadata documents, else dynamic registration, at the provider. --client-id says that a client is registered."
        RegistrationPlain "registration-plain" Provider "Have the provider name its registration_endpoint by https."
    }
    Scopes {
        ScopeNotListed "scope-not-listed" Proxy "Compare spec.oidcConfigRef.scopes with the scopes of the provider: one that it does not know makes it refuse the login (invalid_scope). A provider may leave scopes out of its list; with a token this check finds out."
    }
    Clock {
        ClockOfServer "clock-of-server" Proxy "Set the clock (NTP) of the node that the proxy runs on: tokens count as expired or not yet valid there."
        ClockOfProvider "clock-of-provider" Provider "Set the clock (NTP) of the provider: it issues tokens that are expired, or not yet valid, elsewhere."
        ClockOfClient "clock-of-client" Client "Set the clock (NTP) of this machine: the other two agree with each other."
    }
    Token {
        TokenEndpointFails "token-endpoint-fails" Provider "Look into the provider's log for this request to its token endpoint."
        ClientRefused "client-refused" Client "Check the client's id and secret (without a line break at the end), and that they are of this provider."
        GrantRefused "grant-refused" Provider "Allow this client the client credentials grant; or log in as a user by a client of yours, and give its token to --token-file."
        ScopeRefused "scope-refused" Provider "Allow the client these scopes at the provider, or ask for others by spec.oidcConfigRef.scopes."
        ResourceRefused "resource-refused" Provider "Register the resource at the provider as an API, resource server or audience, to the letter, and allow it to the client."
        ScopeNotGranted "scope-not-granted" Provider "Allow the client these scopes at the provider; it left them out of the token."
        SecretOfOtherIssuer "secret-of-other-issuer" Client "The secret was not sent. If you know that the issuer that the server names is the provider of this client, give it to --issuer, to the letter. If it is not, set spec.inline.issuer of the MCPOIDCConfig to the client's provider, or use a client of the one that is named."
        TokenOfOtherIssuer "token-of-other-issuer" Client "Get the token of the provider that the server names; or, if this provider is the right one, write its issuer into spec.inline.issuer of the MCPOIDCConfig, exactly as the token's `iss` has it. The token was not sent."
        TokenExpired "token-expired" Client "Get a new token. If it is new, a clock is wrong: see the step clock."
        TokenNotYetValid "token-not-yet-valid" Provider "Set the clock of the provider, or that of the proxy's node: see the step clock."
    }
    Initialize {
        TokenWrongAudience "token-wrong-audience" Provider "Have the provider write the resource into `aud` (an audience mapper, or an API with that identifier); and let spec.oidcConfigRef.audience be one that tokens have. Where they agree, the reason is in the proxy's log."
        TokenIsIdToken "token-is-id-token" Client "Send the access token: this one looks like an ID token, which is for the client itself."
        TokenOpaque "token-opaque" Proxy "Set introspectionUrl, clientId and clientSecretRef of the MCPOIDCConfig, by which the proxy asks what such a token is worth; or have the provider issue JWTs. If it is set, the token may be expired or revoked."
        TokenRefused "token-refused" Proxy "Read the proxy's log: it says why (signature, key, typ, audience). Compare spec.inline.issuer and jwksUrl of the MCPOIDCConfig with the token's `iss`, and spec.oidcConfigRef.audience with its `aud`."
        ScopeInsufficient "scope-insufficient" Client "Log in again with the scopes that are asked for; the provider must allow them to the client and the user."
        CallerForbidden "caller-forbidden" Proxy "The token is valid, and its bearer may not do this: see the policies of spec.authzConfig, the webhooks, and what the server itself allows."
        CredentialRefused "credential-refused" Proxy "The proxy takes the token, and the provider of the server's credential refuses it: the proxy's log has the error. By the MCPExternalAuthConfig: for tokenExchange, let clientId exchange tokens of this `aud` and user at tokenUrl; for awsSts, see roleMappings, fallbackRoleArn and whom the role trusts. If the token was revoked, log in again."
        CredentialUnavailable "credential-unavailable" Proxy "The proxy takes the token, and gets no credential for the server: its log says why. Check tokenUrl, clientId, clientSecretRef, audience and scopes of the MCPExternalAuthConfig (for AWS its region and roles, for a token of the proxy's own remote_auth_config of the RunConfig), and that egress rules let the proxy reach the provider."
        ProxyCannotCheck "proxy-cannot-check" Proxy "Let the proxy reach the provider: its log says why it does not. See caBundleRef and jwksAllowPrivateIP of the MCPOIDCConfig, egress rules, and whether the server behind is up."
        ServerFailsBehindLogin "server-fails-behind-login" Proxy "The token was not refused; look into the log of the proxy, and into that of the MCP server behind it."
        NoMcpAnswer "no-mcp-answer" Proxy "The token was not refused; check that the URL leads to an MCP server and nothing between changes its answers."
    }
    Browser {
        PreflightRefused "preflight-refused" Proxy "Answer OPTIONS without a token, and allow the page's origin: for proxies of Portcullis in the annotation portcullis.dev/allowed-origins, or by --allowed-origins of the operator."
        PreflightHeaders "preflight-headers" Proxy "Allow the headers in Access-Control-Allow-Headers by their names: `*` does not cover Authorization."
        AnswerUnreadable "answer-unreadable" Proxy "Send Access-Control-Allow-Origin with the 401 as well, not only with the preflight, and once: an Ingress may add a second."
        HeadersHidden "headers-hidden" Proxy "Send Access-Control-Expose-Headers: WWW-Authenticate, Mcp-Session-Id, or a page cannot read them."
        ResourceMetadataUnreadable "resource-metadata-unreadable" Proxy "Send Access-Control-Allow-Origin: * with the protected-resource metadata, and once: an Ingress may add a second."
        ProviderMetadataUnreadable "provider-metadata-unreadable" Provider "Allow the page's origin at the provider (its web origins, or CORS setting): the page reads the metadata and fetches tokens itself."
    }
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Ok,
    /// It passes, and some clients or some later day may be worse off.
    Note,
    Failed,
    Skipped,
}

/// A step with what was seen of it.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) step: Step,
    pub(crate) status: Status,
    pub(crate) seen: String,
    pub(crate) cause: Option<Cause>,
}

impl Finding {
    pub(crate) fn ok(step: Step, seen: impl Into<String>) -> Self {
        Self { step, status: Status::Ok, seen: seen.into(), cause: None }
    }

    pub(crate) fn skipped(step: Step, why: impl Into<String>) -> Self {
        Self { step, status: Status::Skipped, seen: why.into(), cause: None }
    }

    pub(crate) fn failed(cause: Cause, seen: impl Into<String>) -> Self {
        Self { step: cause.verdict().step, status: Status::Failed, seen: seen.into(), cause: Some(cause) }
    }

    pub(crate) fn note(cause: Cause, seen: impl Into<String>) -> Self {
        Self { status: Status::Note, ..Self::failed(cause, seen) }
    }
}

/// A fact for the steps to come, with the finding of this one; or the finding alone where they have to do without.
pub(crate) type Judged<T> = Result<(T, Finding), Finding>;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The page that explains the verdicts.
    const PAGE: &str = include_str!("../../../../docs/src/how-to/check-login.md");

    #[test]
    fn names_are_unique_and_the_page_has_every_step_and_verdict() {
        let steps: BTreeSet<_> = Step::ALL.iter().map(|step| step.name()).collect();
        let causes: BTreeSet<_> = Cause::ALL.iter().map(|cause| cause.verdict().name).collect();
        assert_eq!((steps.len(), causes.len()), (Step::ALL.len(), Cause::ALL.len()));
        for name in steps.iter().chain(&causes) {
            assert!(PAGE.contains(&format!("`{name}`")), "the page does not name {name}");
        }
    }
}
