//! The part of a credential in a workload: a row for each type and what is behind the workload (toolhive-auth §3.1).

use std::borrow::Cow;

use ExternalAuthType::{
    AwsSts, BearerToken, EmbeddedAuthServer, HeaderInjection, Obo, TokenExchange, Unauthenticated, UpstreamInject, Xaa,
};
use mcp_api::v1beta1::external_auth::{ExternalAuthSpec, ExternalAuthType};
use mcp_plan::{
    config::{Behind, ConfigUse, Misfit, Part, Role, Target},
    external_auth::{AUTH_SERVER, credential_in, is_auth_server},
};
use mcp_runconfig::{AWS_STS, TOKEN_EXCHANGE, TOKEN_INJECTION};

/// Reason: ToolHive has the type in another edition.
pub(super) const ENTERPRISE: &str = "EnterpriseRequired";
/// Reason: the type cannot work there.
const INVALID: &str = "InvalidConfig";
/// The note and the warning of a credential that a proxy does not send.
const IDLE: &str = "is used by a VirtualMCPServer only; this proxy sends no credential";
/// The note and the warning of an exchange where nobody logs in.
const NO_LOGIN: &str = "exchanges the token of each caller, and without spec.oidcConfigRef only the provider of the \
     exchange checks it; a caller without one is refused";
/// The note and the warning of one token for every caller where nobody logs in.
const SHARED: &str = "sends one token for every caller, and without spec.oidcConfigRef whoever reaches the proxy's Service calls \
     with it; set spec.oidcConfigRef";
/// The warning of a credential that is sent in clear text.
const CLEAR_TEXT: &str = "is sent in clear text, as spec.remoteUrl is one of http; use https";

enum Fit {
    /// It is sent, by middleware of these types.
    Sent(&'static [&'static str]),
    /// Nothing is sent.
    Idle,
    /// It cannot work.
    Never(Misfit),
}

const fn never(reason: &'static str, problem: &'static str) -> Fit {
    Fit::Never(Misfit { reason, problem: Cow::Borrowed(problem) })
}

/// The row of a type and of what is behind, where callers log in or do not.
const fn fit(kind: ExternalAuthType, behind: Behind, has_login: bool) -> Fit {
    match (kind, behind) {
        (Obo, _) => never(ENTERPRISE, "has type obo, which is not part of this operator; use another type"),
        (TokenExchange, Behind::Container | Behind::Remote) => Fit::Sent(&[TOKEN_EXCHANGE]),
        (BearerToken, Behind::Remote) => Fit::Sent(&[TOKEN_INJECTION]),
        (AwsSts, Behind::Remote) if has_login => Fit::Sent(&[AWS_STS]),
        (AwsSts, Behind::Remote) => {
            never(INVALID, "has type awsSts, which gives roles by claims that a login checks; set spec.oidcConfigRef")
        }
        (BearerToken, Behind::Container) => {
            never(INVALID, "has type bearerToken, which only a remote server gets; refer to it from an MCPRemoteProxy")
        }
        (AwsSts, Behind::Container) => {
            never(INVALID, "has type awsSts, which requires a remote URL: SigV4 signing is for an MCPRemoteProxy alone")
        }
        (HeaderInjection | Unauthenticated | UpstreamInject | Xaa, Behind::Container | Behind::Remote) => Fit::Idle,
        (EmbeddedAuthServer, Behind::Container | Behind::Remote) => {
            never(INVALID, "is an authorization server, which this version does not run; remove the reference")
        }
        (TokenExchange | HeaderInjection | Unauthenticated | AwsSts | UpstreamInject | Xaa, Behind::Group) => {
            Fit::Sent(&[])
        }
        (BearerToken, Behind::Group) => {
            never(INVALID, "has the unsupported auth type bearerToken; use headerInjection for the servers of a group")
        }
        (EmbeddedAuthServer, Behind::Group) => {
            never(INVALID, "is an authorization server and no credential; set spec.authServerConfig instead")
        }
    }
}

/// The part of a credential in `target`.
pub(super) fn part(spec: &ExternalAuthSpec, asked: &ConfigUse, target: &Target) -> Part {
    let kind = spec.kind;
    // It decides who may call; the others are about what the server gets.
    let guards = kind == EmbeddedAuthServer || is_auth_server(asked);
    let (role, mark) = if guards { (Role::Guard, Some(AUTH_SERVER)) } else { (Role::Setting, None) };
    let part = Part { role, mark, ..Part::of(asked) };
    if is_auth_server(asked) && kind != EmbeddedAuthServer {
        let problem =
            "is no authorization server; name one of type embeddedAuthServer, or set spec.externalAuthConfigRef";
        return Part { misfit: Some(Misfit { reason: "AuthServerRefInvalidType", problem: problem.into() }), ..part };
    }
    match fit(kind, target.behind, target.has_login) {
        Fit::Sent(middleware) => {
            let header = credential_in(spec, &target.added_headers);
            let misfit = header.map(|header| Misfit {
                reason: INVALID,
                problem: format!("sends its credential in {header}, which spec.headerForward adds; remove that header")
                    .into(),
            });
            let note = match kind {
                TokenExchange if target.behind != Behind::Group => Some(NO_LOGIN),
                BearerToken => Some(SHARED),
                _ => None,
            };
            let note = note.filter(|_| !target.has_login);
            let clear = target.in_clear_text.then_some(CLEAR_TEXT);
            Part { middleware, note, warnings: note.into_iter().chain(clear).collect(), misfit, ..part }
        }
        Fit::Idle => {
            Part { note: Some(IDLE), warnings: (!target.in_group).then_some(IDLE).into_iter().collect(), ..part }
        }
        Fit::Never(misfit) => Part { misfit: Some(misfit), ..part },
    }
}
